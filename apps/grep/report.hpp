// What the program prints: lines, the JSON object, the summary.
#pragma once

#include <string>

#include "common/output_file.hpp"
#include "session.hpp"

namespace penstock::grep {

// word<TAB>path<TAB>count, one line per count, with field_of() the path; a word may have tabs, so
// lines are taken apart from their end. With --null the path as it is, and a zero byte behind every
// field in place of tabs and line ends.
status write_lines(const session& s, apps::output_file& to);

// The JSON object, one line.
std::string json_of(const session& s);

// The runtime's notes; files, bytes, time and cache figures in one line; one more for each method
// if they were compared.
void say_summary(const session& s);

// What was left out, one line each.
void say_left_out(const session& s);

}  // namespace penstock::grep
