// penstock cat: files through the cache to standard output.
#pragma once

#include <string>
#include <vector>

#include "common/command_line.hpp"

namespace penstock::cat {

struct request {
    apps::common_flags common;
    std::vector<std::string> files;
    std::string out;
    bool stats = false;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::cat
