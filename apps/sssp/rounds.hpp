// The rounds of a run: an update, then every method with the same weights; what they find is
// compared.
#pragma once

#include "penstock/error.hpp"

namespace penstock::sssp {

struct session;

// Fills the session's report. The distances of the last round stay in it.
status run_rounds(session& s);

}  // namespace penstock::sssp
