// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.hpp"

namespace penstock::grep {

struct request {
    apps::common_flags common;
    std::string dictionary;
    std::string out;
    std::vector<std::string> paths;
    std::string method = "penstock";
    bool compare = false;
    bool strict = false;
    bool null_ends = false;
    std::uint64_t record_bytes = 0;  // 0: automatic
    std::uint64_t piece_bytes = 0;   // 0: automatic
    options settings;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

}  // namespace penstock::grep
