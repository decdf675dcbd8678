// The lines of a trace: of its header, which both formats have, and of one record as text.
#pragma once

#include <string>
#include <string_view>

#include "trace.hpp"

namespace penstock::trace {

// The lines of a trace's header, which both formats have.

// Takes the lines of a header one by one.
class header_parser {
public:
    // What is wrong with the line and what was expected; empty if it was taken.
    std::string take(std::string_view line);
    // The same for the whole, after its last line.
    std::string finish(trace_header& out);

private:
    std::string take_page(std::string_view rest);
    std::string take_file(std::string_view rest);
    std::string take_contents(std::string_view rest);
    std::string take_common(std::string_view rest);
    [[nodiscard]] std::string check_sizes() const;
    [[nodiscard]] std::string check_contents() const;

    trace_header header_;
    bool has_page_ = false, has_common_ = false;
};

// Every line with its end.
std::string header_text(const trace_header& header);

// What is wrong with a path that a header is to name; empty if nothing is.
std::string check_path(std::string_view path);

// One record as a line of text: TIME_NS R|W|F FILE PAGE PAGES [CONTENT].

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
