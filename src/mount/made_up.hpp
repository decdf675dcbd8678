// Files of the source that are made up when they are read, as of /proc and /sys: their sizes are not those of what they
// give, and what they give may depend on who reads.
#pragma once

#include <vector>

#include "mount/tree.hpp"

namespace penstock::mount {

// Answers a read of a file of a false size by what comes now, as far as the program asks.
void read_what_comes(fuse_req_t request, const fuse_file_info* open, std::size_t bytes, off_t offset);

// What a file that claims to be empty gives to anybody, as far as reading it does no harm. Nothing: that cannot be told, or
// it is more than 1 MiB. Throws std::bad_alloc.
std::vector<char> public_content_of(const node& what);

}  // namespace penstock::mount
