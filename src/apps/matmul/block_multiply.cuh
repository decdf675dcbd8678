// A tile on a thread block of a GPU: 128 by 128 numbers, 8 by 8 of them in the registers of each thread.
//
// 32 columns of A and rows of B at a time lie in shared memory, where the warps fetch them. The products of a slab are added one after
// the other with one rounding each, and then the slab's sums to those before, as on CPU threads. The loop is a function of its own, for it
// needs all registers there are, and nothing that the code around it, with its calls into the page cache, keeps.
#pragma once

#include <cstdint>

#include "matmul_view.hpp"
#include "penstock/base/by_address.hpp"
#include "penstock/group/block.cuh"
#include "penstock/group/warp.cuh"

namespace penstock::matmul {

inline constexpr std::uint32_t block_threads = 256;
inline constexpr tile_shape block_tile{128, 128};
inline constexpr std::uint32_t stage_depth = 32;
inline constexpr std::uint32_t block_warps = block_threads / 32;
static_assert(slab_depth % stage_depth == 0 && stage_depth % block_warps == 0 && block_tile.rows % block_warps == 0);

struct block_state {
    alignas(16) float a[block_tile.rows * stage_depth];     // rows of a stage one behind the other, as long as the stage is deep
    alignas(16) float b[stage_depth * block_tile.columns];  // the same, as long as the tile is wide

    // When the tile is done: half of its rows.
    PENSTOCK_D float* rows() { return a; }
};
static_assert(sizeof(block_state) == block_tile.rows / 2 * block_tile.columns * sizeof(float));

// The block's. By a function, so that code that is not inlined knows it for shared memory.
PENSTOCK_D PENSTOCK_INLINE block_state& shared_state() {
    __shared__ block_state state;
    return state;
}

// Which row or column of the tile a thread's sum belongs to: four side by side, and four that lie 64 further.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t place_of_sum(std::uint32_t thread, std::uint32_t i) { return thread * 4 + i % 4 + i / 4 * 64; }

// Four numbers of a row of A with those of B.
PENSTOCK_D PENSTOCK_INLINE void add_four(const float4& a, const float (&b)[4][8], float (&sums)[8]) {
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) sums[j] = __fmaf_rn(a.x, b[0][j], sums[j]);
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) sums[j] = __fmaf_rn(a.y, b[1][j], sums[j]);
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) sums[j] = __fmaf_rn(a.z, b[2][j], sums[j]);
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) sums[j] = __fmaf_rn(a.w, b[3][j], sums[j]);
}

// A stage that is as deep and as wide as it can be, to the 64 sums of the thread. Called directly and not by address, as the rare ones
// below: it is called for every stage, and by address it would save and bring back 55 registers each time.
PENSTOCK_D PENSTOCK_NOINLINE inline void add_full_stage(float* all_sums) {
    const block_state& s = shared_state();
    const std::uint32_t across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sums[8][8];
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) sums[i / 8][i % 8] = all_sums[i];
#pragma unroll 1
    for (std::uint32_t depth = 0; depth < stage_depth; depth += 4) {
        float b[4][8];
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i) {
            const float* const row = s.b + (depth + i) * block_tile.columns + across * 4;
            *reinterpret_cast<float4*>(b[i]) = *reinterpret_cast<const float4*>(row);
            *reinterpret_cast<float4*>(b[i] + 4) = *reinterpret_cast<const float4*>(row + 64);
        }
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) add_four(*reinterpret_cast<const float4*>(s.a + place_of_sum(down, i) * stage_depth + depth), b, sums[i]);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) all_sums[i] = sums[i / 8][i % 8];
}

// A stage at the end of A's rows or of B's. Sums of rows and columns that are not there come to anything.
PENSTOCK_D PENSTOCK_NOINLINE inline void add_last_stage(std::uint32_t depth, std::uint32_t width, float* sums) {
    const block_state& s = shared_state();
    const std::uint32_t across = threadIdx.x % 16, down = threadIdx.x / 16;
#pragma unroll 1
    for (std::uint32_t at = 0; at < depth; ++at)
#pragma unroll 1
        for (std::uint32_t i = 0; i < 64; ++i)
            sums[i] = __fmaf_rn(s.a[place_of_sum(down, i / 8) * depth + at], s.b[at * width + place_of_sum(across, i % 8)], sums[i]);
}

// When a slab is done. A function too, so that both arrays are in memory from the beginning and take no registers from the loop around it.
PENSTOCK_D PENSTOCK_NOINLINE inline void end_slab(float* totals, float* sums) {
    for (std::uint32_t i = 0; i < 64; ++i) {
        totals[i] += sums[i];
        sums[i] = 0;
    }
}

// Whole block: the stage that begins `first` numbers into A's rows. False if a part could not be had.
template <typename Source>
PENSTOCK_D PENSTOCK_INLINE bool fetch_stage(const block& g, const Source& source, const matmul_view& v, const tile_place& at, std::uint64_t first, std::uint32_t depth) {
    block_state& s = shared_state();
    const warp w = this_warp();
    const std::uint32_t number = threadIdx.x / 32;
    // Each warp has rows of its own, side by side.
    const std::uint32_t of_a = block_tile.rows / block_warps, a_begin = lesser(number * of_a, at.rows), a_end = lesser(a_begin + of_a, at.rows);
    const std::uint32_t of_b = stage_depth / block_warps, b_begin = lesser(number * of_b, depth), b_end = lesser(b_begin + of_b, depth);
    bad_file which = bad_file::a;
    std::int64_t code = a_begin == a_end ? 0 : source.fetch(w, which, at.row + a_begin, a_end - a_begin, first, depth, s.a + a_begin * depth);
    if (code == 0 && b_begin != b_end) code = source.fetch(w, which = bad_file::b, first + b_begin, b_end - b_begin, at.column, at.columns, s.b + b_begin * at.columns);
    if (code != 0 && w.is_leader()) note_error(v, which, code);
    return g.all(code == 0);  // and all parts are there
}

// Whole block: the tile, 64 sums of it in each thread. False if a part could not be had.
template <typename Source>
PENSTOCK_D PENSTOCK_INLINE bool multiply_on_block(const block& g, const Source& source, const matmul_view& v, const tile_place& at, float* totals) {
    float sums[64];
    for (std::uint32_t i = 0; i < 64; ++i) totals[i] = sums[i] = 0;
    for (std::uint64_t first = 0; first < v.k; first += stage_depth) {
        const auto depth = static_cast<std::uint32_t>(lesser<std::uint64_t>(stage_depth, v.k - first));
        if (!fetch_stage(g, source, v, at, first, depth)) return false;
        if (depth == stage_depth && at.columns == block_tile.columns) add_full_stage(sums);
        else by_address(&add_last_stage)(depth, at.columns, sums);
        g.sync();  // all have read the stage before the next one comes
        if ((first + stage_depth) % slab_depth == 0 || first + stage_depth >= v.k) by_address(&end_slab)(totals, sums);
    }
    return true;
}

// Whole block: tiles one after the other. `write(at, totals)`: brings the tile to where it belongs.
template <typename Source, typename Stop, typename Write>
PENSTOCK_D PENSTOCK_INLINE void multiply_tiles_on_block(const block& g, const Source& source, const matmul_view& v, const Stop& stop, const Write& write) {
    const std::uint64_t count = v.tile_count(block_tile);
    for (std::uint64_t tile = apps::take_item(g, v.totals, count, stop); tile < count; tile = apps::take_item(g, v.totals, count, stop)) {
        const tile_place at = place_of(v, block_tile, tile);
        float totals[64];
        if (multiply_on_block(g, source, v, at, totals)) write(at, totals);
    }
}

}  // namespace penstock::matmul
