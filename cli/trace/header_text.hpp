// The lines of a trace's header, which both formats have.
#pragma once

#include <string>
#include <string_view>

#include "trace.hpp"

namespace penstock::trace {

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

}  // namespace penstock::trace
