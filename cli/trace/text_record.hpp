// One record as a line of text: TIME_NS R|W|F FILE PAGE PAGES [CONTENT].
#pragma once

#include <string>
#include <string_view>

#include "trace.hpp"

namespace penstock::trace {

inline constexpr std::string_view text_first_line = "penstock-trace 1";
inline constexpr char letters[] = {'R', 'W', 'F'};  // by operation

// False if the line is not of this form; `out` is then unspecified.
bool parse_record(std::string_view line, record& out);

// What in a line that parse_record() refused is wrong, and what was expected.
std::string why_no_record(std::string_view line);

// Most bytes that a record takes, with its line end.
inline constexpr std::size_t most_record_bytes = 20 + 2 + 11 + 21 + 11 + 21 + 1;

// Writes the line with its end; what lies behind it.
char* print_record(const record& r, char* to);

}  // namespace penstock::trace
