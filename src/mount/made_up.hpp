// Files that the source makes up when they are read, such as those of /proc and /sys. Their sizes
// say nothing about the bytes that they give, and the bytes may depend on the reader.
#pragma once

#include <vector>

#include "mount/tree.hpp"

namespace penstock::mount {

// host::is_made_up, asked once for each node.
bool is_made_up(node& what);

// Answers a read of a file of a false size with the bytes that come, at most as many as the program
// asks for.
void read_what_comes(fuse_req_t request, const fuse_file_info* open, std::size_t bytes,
                     off_t offset);

// The bytes that a file which claims to be empty gives to any user. None if reading it might wait
// or use them up, or if they are more than 1 MiB. Throws std::bad_alloc.
std::vector<char> public_content_of(const node& what);

}  // namespace penstock::mount
