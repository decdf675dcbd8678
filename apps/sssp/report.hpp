// What the program prints: the JSON object, the summary.
#pragma once

#include "make_graph.hpp"
#include "session.hpp"

namespace penstock::sssp {

// While a run goes on, in words on standard error, unless quiet: what computes, and what each
// percentage took.
void say_methods(const session& s);
void say_update(const session& s, const update_run& u);

// At the end: the object on standard output, if asked for, and the rest of the words.
status report(const session& s);
status report(const request& asked, const make_report& made);

}  // namespace penstock::sssp
