// penstock cp: files copied by a kernel, or by CPU threads, through the cache.
#pragma once

#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "copy_batch.hpp"

namespace penstock::cp {

struct request {
    apps::common_flags common;
    std::vector<std::string> names;  // of the files, and last where they go
    copy_settings how;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::cp
