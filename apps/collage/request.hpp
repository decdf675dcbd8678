// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/command_line.hpp"

namespace penstock::collage {

struct index_request {
    std::string folder;
    std::string out;
    std::uint64_t tiles = 0;   // 0: all
    std::uint32_t stride = 0;  // 0: automatic
    std::uint32_t scales = 4;
    std::uint64_t seed = 20160606;
    bool strict = false;
};

struct make_request {
    std::string input;
    std::string library;
    std::string out;
    std::string method = "penstock";
};

struct request {
    bool is_index = false;
    apps::common_flags common;
    index_request index;
    make_request make;
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::collage
