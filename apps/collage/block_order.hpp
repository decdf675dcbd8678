// In which order the blocks of a picture are made: blocks of like colours one after the other, for
// they are compared with the same tiles, which should still be in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "picture.hpp"

namespace penstock::collage {

// Smaller pictures are made row by row: their blocks are nearly all under way at once, whatever the
// order.
inline constexpr std::uint64_t least_ordered_blocks = 1024;

// Every block's number once; the same for any number of threads.
std::vector<std::uint32_t> block_order(const picture& of, std::uint32_t threads);

}  // namespace penstock::collage
