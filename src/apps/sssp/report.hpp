// What the program prints: the JSON object, the summary.
#pragma once

#include "make_graph.hpp"
#include "session.hpp"

namespace penstock::sssp {

// To standard output, if asked for, and in words to standard error, unless quiet.
status report(const session& s);
status report(const request& asked, const make_report& made);

}  // namespace penstock::sssp
