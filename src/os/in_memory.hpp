// Has the operating system a part of a file in memory?
#pragma once

#include <vector>

#include "os/env.hpp"

namespace penstock::host {

// All of it? Where that cannot be told it counts as so. `offset` is a multiple of the page size of
// the machine.
inline bool is_in_memory(environment& env, int fd, std::uint64_t offset, std::uint64_t bytes) {
    if (const int told = env.in_page_cache(fd, offset, bytes); told >= 0) return told == 1;
    void* at = nullptr;
    if (env.map_file(fd, offset, bytes, at) != 0) return true;
    std::vector<bool> resident;
    const int code = env.resident(at, bytes, bytes, resident);
    env.unmap_file(at, bytes);
    return code != 0 || resident.at(0);
}

}  // namespace penstock::host
