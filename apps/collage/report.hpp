// What the program prints: the JSON object and the summary.
#pragma once

#include <memory>
#include <string>

#include "index_library.hpp"
#include "methods.hpp"

namespace penstock::collage {

// One collage: what was asked, what was done.
struct make_report {
    library from;
    method_report method;
    std::unique_ptr<runtime> rt;     // null if the method needed none
    std::vector<std::string> notes;  // what the runtime said when it was made
    double library_seconds = 0;      // opening and checking it
    double decode_seconds = 0;
    double encode_seconds = 0;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
};

// One line each.
std::string json_of(const request& asked, const index_report& report);
std::string json_of(const request& asked, const make_report& report);

void say_summary(const index_report& report);
void say_summary(const request& asked, const make_report& report);

}  // namespace penstock::collage
