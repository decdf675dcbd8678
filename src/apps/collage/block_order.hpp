// In which order the blocks of a picture are made: those of like colour one after the other, for they are compared with the
// same tiles, which should still be in the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "picture.hpp"

namespace penstock::collage {

// Every block's number once. From sixteen pixels of each block, which takes a few milliseconds for the largest pictures.
std::vector<std::uint32_t> block_order(const picture& of);

}  // namespace penstock::collage
