// Changed bytes of pages on their way to the file.
#pragma once

#include <cstdint>
#include <vector>

#include "os/env.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

struct staged_pages {
    const std::vector<std::uint64_t>& numbers;  // of the file, in order
    const std::byte* bytes;                     // one page after the other
    const std::byte* marks;
    std::uint64_t end_bytes;  // of the file nothing is written from here on
    bool exactly;  // no byte without a mark may be written, not even as it is in the file
};

struct written_pages {
    int code = 0;               // or a negative errno
    std::uint64_t settled = 0;  // of the staged bytes: up to there all that is marked is in the
                                // file, and nothing of the rest
    std::uint64_t bytes = 0;    // that were written
};

// Each marked byte to its place in the file; runs that follow each other in one call.
written_pages write_marked(host::environment& env, int fd, const staged_pages& pages);

}  // namespace penstock::region
