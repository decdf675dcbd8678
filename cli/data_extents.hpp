// Where a file has data, and where it has holes that need not be copied.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::cp {

struct file_range {
    std::uint64_t offset_bytes = 0, bytes = 0;
};

// The parts of the first `size_bytes` bytes that are not holes, in order: each begins at a multiple
// of `piece_bytes`, and ends at one or at the end of the file. Holes that have no whole piece count
// as data. All of it, where the file system does not tell.
std::vector<file_range> data_of(int fd, std::uint64_t size_bytes, std::uint64_t piece_bytes);

}  // namespace penstock::cp
