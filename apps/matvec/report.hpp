// What the program prints: the JSON object, the summary.
#pragma once

#include <string>

#include "make_inputs.hpp"
#include "session.hpp"

namespace penstock::matvec {

// One line each.
std::string json_of(const session& s);
std::string json_of(const request& asked, const make_report& report);

void say_summary(const session& s);
void say_summary(const request& asked, const make_report& report);

}  // namespace penstock::matvec
