// Parts of the case miss that both back ends share.
#pragma once

#include "context.hpp"

namespace penstock::bench {

// Records of 3 KiB on 4 KiB boundaries and blocks of 32 KiB anywhere, at random, with pages of this
// size: what reaches the caller a second, and how much was loaded for it.
status random_records(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

// The time of one run that evicts all the while, with fewer and fewer shards of the clock.
status fewer_shards(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

// Opens windows onto the whole file where there is a GPU; nothing elsewhere.
status open_all_windows(const context& here, runtime& rt, int fd, std::uint64_t file_bytes);

}  // namespace penstock::bench
