// An item on a thread block of a GPU: 128 queries with 128 images at a time, 8 by 8 of them in the
// registers of each thread.
//
// As in a matrix product, 8 numbers of all rows at a time go through shared memory, while those
// after them are on their way to registers. That loop is a function of its own, for it needs all
// registers there are, and nothing that the code around it, with its calls into the page cache,
// keeps. Each sum is made one number after the other, with one rounding a number, as on CPU
// threads.
#pragma once

#include <cstdint>

#include "match_view.hpp"
#include "penstock/base/macros.hpp"
#include "penstock/group/gpu_groups.cuh"

namespace penstock::match {

inline constexpr std::uint32_t block_threads = 256;
inline constexpr std::uint32_t block_images = 128;
inline constexpr std::uint32_t block_queries = 128;
inline constexpr std::uint32_t block_depth = 8;  // numbers that are in shared memory at a time
// Between two looks whether any distance can still be below the threshold.
inline constexpr std::uint32_t block_unit_floats = 64;
inline constexpr std::uint32_t row_pages = 8;  // that a slab of an image may touch
// A row of shared memory: with 4 numbers over, the two halves of a warp that store 4 rows apart
// meet different banks.
inline constexpr std::uint32_t row_floats = block_images + 4;
static_assert(block_images == block_queries && block_threads * 4 == block_images * block_depth,
              "a thread brings four numbers of each side");

struct block_state {
    alignas(16) float queries[2][block_depth][row_floats];
    alignas(16) float images[2][block_depth][row_floats];
    std::uint64_t piece[block_images][row_pages];  // address of byte 0 of the slab, if all of it
                                                   // lay as this page's part does
    std::uint64_t word[block_images][row_pages];   // what unmap needs
    std::uint32_t frame[block_images][row_pages];
    std::uint32_t pieces[block_images];  // held, of each row
    std::uint32_t live[block_queries];
    std::uint32_t live_count;
    std::int32_t code;
    std::uint64_t next_query;
};

// The block's. By a function, so that code that is not inlined knows it for shared memory.
PENSTOCK_D PENSTOCK_INLINE block_state& shared_state() {
    __shared__ block_state state;
    return state;
}

// Whole block: the item's next queries, from next_query on, that have no match before the tile.
// False if there is none left.
PENSTOCK_D inline bool pick_live(const block& g, const match_view& v, const tile_place& at,
                                 block_state& s) {
    if (threadIdx.x < 32) {
        std::uint32_t count = 0;
        std::uint64_t next = s.next_query;
        while (next < at.query_end && count < block_queries) {
            const std::uint64_t query = next + threadIdx.x;
            const bool live = query < at.query_end && is_live(v, at, query);
            const std::uint32_t all = __ballot_sync(0xffffffffu, live);
            const std::uint32_t place =
                count + static_cast<std::uint32_t>(__popc(all & ((1u << threadIdx.x) - 1)));
            if (live && place < block_queries) s.live[place] = static_cast<std::uint32_t>(query);
            const std::uint32_t over = __ballot_sync(0xffffffffu, live && place >= block_queries);
            next += over != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(over))) - 1 : 32u;
            count += static_cast<std::uint32_t>(__popc(all & ~over));
        }
        if (threadIdx.x == 0) {
            s.next_query = next;
            s.live_count = count;
        }
    }
    g.sync();
    return s.live_count != 0;
}

// What a thread brings of each chunk: four numbers of one query and of one image.
struct chunk_loader {
    const float* query;     // at the slab's first number
    std::uint32_t image;    // row of the state's `piece`
    std::uint32_t in_page;  // where the slab begins in the image's first page
    std::uint32_t page_shift;
    std::uint32_t first;  // number of the chunk
    float4 queries, images;

    PENSTOCK_D PENSTOCK_INLINE void load(const block_state& s, std::uint32_t done) {
        const std::uint32_t at = (done + first) * sizeof(float);
        queries = __ldg(reinterpret_cast<const float4*>(query + done + first));
        images =
            *reinterpret_cast<const float4*>(s.piece[image][(in_page + at) >> page_shift] + at);
    }
    PENSTOCK_D PENSTOCK_INLINE void store(block_state& s, std::uint32_t half,
                                          std::uint32_t row) const {
        float* const q = &s.queries[half][first][row];
        q[0] = queries.x, q[row_floats] = queries.y, q[2 * row_floats] = queries.z,
        q[3 * row_floats] = queries.w;
        float* const i = &s.images[half][first][row];
        i[0] = images.x, i[row_floats] = images.y, i[2 * row_floats] = images.z,
        i[3 * row_floats] = images.w;
    }
};

// The rows that a thread's sums belong to: four side by side, and four that lie 64 further.
PENSTOCK_D inline std::uint32_t sum_row(std::uint32_t thread, std::uint32_t i) {
    return thread * 4 + i % 4 + i / 4 * 64;
}

PENSTOCK_D PENSTOCK_INLINE void load_eight(float (&to)[8], const float* from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
    *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(from + 64);
}

PENSTOCK_D PENSTOCK_INLINE void add_chunk(const block_state& s, std::uint32_t half,
                                          std::uint32_t across, std::uint32_t down,
                                          float (&sums)[8][8]) {
#pragma unroll
    for (std::uint32_t k = 0; k < block_depth; ++k) {
        float q[8], x[8];
        load_eight(q, s.queries[half][k] + down * 4);
        load_eight(x, s.images[half][k] + across * 4);
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i)
#pragma unroll
            for (std::uint32_t j = 0; j < 8; ++j) {
                const float difference = q[i] - x[j];
                sums[i][j] = __fmaf_rn(difference, difference, sums[i][j]);
            }
    }
}

PENSTOCK_D PENSTOCK_INLINE bool any_below(const float (&sums)[8][8], float threshold) {
    bool any = false;
#pragma unroll
    for (std::uint32_t i = 0; i < 8; ++i)
#pragma unroll
        for (std::uint32_t j = 0; j < 8; ++j) any |= sums[i][j] < threshold;
    return any;
}

// Whole block: adds a slab to the 64 sums, 8 of each of 8 queries. Returns how many numbers it came
// to: fewer than `floats` if no distance could be below the threshold any more.
PENSTOCK_D PENSTOCK_NOINLINE inline std::uint32_t add_slab(chunk_loader next, std::uint32_t floats,
                                                           bool whole, float threshold,
                                                           float* all_sums) {
    block_state& s = shared_state();
    const std::uint32_t row = threadIdx.x / 2, across = threadIdx.x % 16, down = threadIdx.x / 16;
    float sums[8][8];
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) sums[i / 8][i % 8] = all_sums[i];
    next.load(s, 0);
    next.store(s, 0, row);
    __syncthreads();
    std::uint32_t half = 0, done = 0;
    while (true) {
        const std::uint32_t until = min(done + block_unit_floats, floats);
#pragma unroll 1
        for (; done < until; done += block_depth, half ^= 1) {
            const bool more = done + block_depth < floats;
            if (more) next.load(s, done + block_depth);
            __syncwarp();  // keeps the compiler from moving the loads down to where they are
                           // needed, which saves registers and waits for memory
            add_chunk(s, half, across, down, sums);
            if (more) next.store(s, half ^ 1, row);
            __syncthreads();  // all have read this half before it is written again, and written the
                              // other before it is read
        }
        if (done == floats || (!whole && __syncthreads_or(any_below(sums, threshold)) == 0)) break;
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) all_sums[i] = sums[i / 8][i % 8];
    return done;
}

PENSTOCK_D PENSTOCK_NOINLINE inline void note_matches(const match_view& v, const tile_place& at,
                                                      const float* sums) {
    const block_state& s = shared_state();
    for (std::uint32_t i = 0; i < 64; ++i) {
        const std::uint32_t query = sum_row(threadIdx.x / 16, i / 8),
                            image = sum_row(threadIdx.x % 16, i % 8);
        if (sums[i] < v.threshold && query < s.live_count && image < at.images)
            note_match(v, s.live[query], at.number(image), __float_as_uint(sums[i]));
    }
}

// Whole block: the slab that begins `done` numbers into the images. Rows that are missing are stood
// in for by the first.
template <typename Source>
PENSTOCK_D PENSTOCK_INLINE chunk_loader loader_of(const Source& source, const match_view& v,
                                                  const tile_place& at, const block_state& s,
                                                  std::uint32_t done) {
    const std::uint32_t row = threadIdx.x / 2;
    chunk_loader out{};
    out.query = v.queries + std::uint64_t{s.live[row < s.live_count ? row : 0]} * v.floats + done;
    out.image = row < at.images ? row : 0;
    out.in_page = source.in_page(at.byte_of(out.image) + std::uint64_t{done} * sizeof(float));
    out.page_shift = source.page_shift();
    out.first = threadIdx.x % 2 * 4;
    return out;
}

// Whole block. Source: pin and unpin of the tile's slabs, page_shift and in_page (page_source.hpp).
template <typename Source>
PENSTOCK_D void compare_on_block(const block& g, const Source& source, const match_view& v,
                                 const tile_place& at, block_state& s) {
    constexpr std::uint32_t none = ~0u;
    std::uint32_t held = none;  // the slab
    if (g.is_leader()) {
        s.next_query = at.query_begin;
        s.code = 0;
    }
    if (threadIdx.x < block_images) s.pieces[threadIdx.x] = 0;
    g.sync();
    while (s.code == 0 && pick_live(g, v, at, s)) {
        float sums[64] = {};
        std::uint32_t done = 0;
        bool alive = true;
        while (alive && done < v.floats) {
            const std::uint32_t floats =
                v.floats - done < v.slab_floats ? v.floats - done : v.slab_floats;
            if (held != done) {
                if (held != none) source.unpin(g, s);
                held = done;
                if (!source.pin(g, v, at, done, floats, s)) break;
            }
            const std::uint32_t added = by_address(&add_slab)(
                loader_of(source, v, at, s, done), floats, v.whole != 0, v.threshold, sums);
            done += added;
            alive = added == floats;
        }
        if (s.code == 0 && alive) note_matches(v, at, sums);
        if (s.code == 0 && g.is_leader()) {
            const std::uint64_t pairs = std::uint64_t{s.live_count} * at.images;
            atomic_add_relaxed(&v.totals->pairs, pairs);
            atomic_add_relaxed(&v.totals->numbers, pairs * done);
        }
        g.sync();  // all are done with the list before the next one
    }
    if (held != none) source.unpin(g, s);
    if (s.code != 0 && g.is_leader()) note_error(v, at, s.code);
    g.sync();
}

}  // namespace penstock::match
