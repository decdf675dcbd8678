// What a collage needs, as the code that runs on a GPU or on CPU threads sees it: pointers into
// that device's memory.
#pragma once

#include <cstdint>

#include "library.hpp"

namespace penstock::collage {

struct collage_totals {
    std::uint64_t evaluations;      // candidates compared with a block
    std::uint64_t fallback_blocks;  // that met no candidate in any bucket
    std::int32_t code;              // 0, or the first error of any block
    std::uint32_t taken;            // blocks that a group has taken, or found none left to take
};

struct collage_view {
    const std::uint8_t* picture;  // the input, three bytes a pixel
    std::uint8_t* out;            // of the same size
    std::uint32_t width;
    std::uint32_t height;
    std::uint32_t columns;  // of blocks; partial ones at the right and bottom count
    std::uint32_t rows;
    const std::uint32_t* order;  // of the blocks: which is made as number i (block_order.hpp)
    lsh_ref lsh;
    std::uint64_t tile_count;
    std::uint32_t table_entries[tables];
    std::uint64_t* seen;  // one bit for each tile: it was a candidate of some block
    collage_totals* totals;

    PENSTOCK_HD std::uint64_t blocks() const { return std::uint64_t{columns} * rows; }
};

}  // namespace penstock::collage
