// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/command_line.hpp"

namespace penstock::matmul {

// A is m by k, B k by n, C m by n.
struct matrix_sizes {
    std::uint64_t m = 0;
    std::uint64_t n = 0;
    std::uint64_t k = 0;
};

struct run_request {
    std::string a;
    std::string b;
    std::string out;
    std::string method = "penstock";
    std::uint32_t repeats = 1;
    bool check = false;
    bool windows = true;
};

struct make_request {
    std::string a;
    std::string b;
    std::uint64_t seed = 1;
};

struct request {
    bool is_make = false;
    apps::common_flags common;
    matrix_sizes size;
    run_request run;
    make_request make;
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::matmul
