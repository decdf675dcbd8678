// Tiles on a thread block of a GPU, slab by slab (block_sums.cuh).
//
// A source has a type `held`, of which each thread keeps one for a tile, and whole-block calls
// `find(g, at, first, depth, held)`: fills the table with where the rows of A and of B lie, from
// number `first` of A's rows on, for as long as the slab is used; false, in all threads, if a part
// could not be had, and then it noted why; and `release(held)`, after the last slab.
#pragma once

#include <cstdint>

#include "block_sums.cuh"
#include "penstock/group/block.cuh"
#include "penstock/group/warp.cuh"

namespace penstock::matmul {

// Can 16 bytes be copied at a time? All that is copied begins at a multiple of 4 numbers then, and
// pages do too.
PENSTOCK_D PENSTOCK_INLINE bool goes_by_four(const matmul_view& v) {
    return ((v.k | v.n) & 3) == 0;
}

// Whole block: the tile, 64 sums of it in each thread. False if a part could not be had.
template <typename Source>
PENSTOCK_D PENSTOCK_INLINE bool multiply_on_block(const block& g, const Source& source,
                                                  const matmul_view& v, const tile_place& at,
                                                  float* totals) {
    typename Source::held held;
    bool good = true;
    for (std::uint32_t i = 0; i < 64; ++i) totals[i] = 0;
    for (std::uint64_t first = 0; good && first < v.k; first += slab_depth) {
        const slab_size size{
            at.rows, static_cast<std::uint32_t>(lesser<std::uint64_t>(slab_depth, v.k - first)),
            at.columns};
        g.sync();  // no thread uses the table or the stages of the slab before, or the rows of the
                   // tile before
        good = source.find(g, at, first, size.depth, held);
        if (!good) break;
        if (goes_by_four(v)) add_slab<4>(size, totals);
        else add_slab<1>(size, totals);
    }
    source.release(held);
    return good;
}

// Whole block: tiles one after the other. `write(at, totals)`: brings the tile to where it belongs.
template <typename Source, typename Stop, typename Write>
PENSTOCK_D PENSTOCK_INLINE void multiply_tiles_on_block(const block& g, const Source& source,
                                                        const matmul_view& v, const Stop& stop,
                                                        const Write& write) {
    const std::uint64_t count = v.tile_count(block_tile);
    for (std::uint64_t tile = apps::take_item(g, v.totals, count, stop); tile < count;
         tile = apps::take_item(g, v.totals, count, stop)) {
        const tile_place at = place_of(v, block_tile, tile);
        float totals[64];
        if (multiply_on_block(g, source, v, at, totals)) write(at, totals);
    }
}

}  // namespace penstock::matmul
