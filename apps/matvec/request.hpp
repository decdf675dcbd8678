// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/command_line.hpp"

namespace penstock::matvec {

struct run_request {
    std::string matrix;
    std::string vector;
    std::string out;
    std::string method = "penstock";
    std::uint32_t repeats = 1;
    bool check = false;
    bool windows = true;
};

struct make_request {
    std::string matrix;
    std::string vector;
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
    std::uint64_t seed = 1;
};

struct request {
    bool is_make = false;
    apps::common_flags common;
    run_request run;
    make_request make;
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::matvec
