// A tile on a thread block of a GPU, slab by slab: 128 by 128 numbers, 8 by 8 of them in the
// registers of each thread. First the sums of a slab, then where its rows lie: in the page cache.
//
// A table in shared memory says where the slab's rows of A and of B lie. 16 columns of A and rows
// of B at a time, a stage, are copied from there to shared memory, without registers (cp.async) and
// while the stage before is multiplied. The products of a slab are added one after the other with
// one rounding each, and then the slab's sums to those before, as on CPU threads. It is a function
// of its own, for it needs all registers there are, and nothing that the code around it, with its
// calls into the page cache, keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cached_rows.hpp"
#include "penstock/group/gpu_groups.cuh"

namespace penstock::matrix {

inline constexpr std::uint32_t block_threads = 256;
inline constexpr tile_shape block_tile{128, 128};
inline constexpr std::uint32_t block_warps = block_threads / 32;
inline constexpr std::uint32_t stage_depth = 16;
// Rows that are 4 apart, which a warp reads at once, lie in different banks.
inline constexpr std::uint32_t a_stride = stage_depth + 4;
inline constexpr std::uint32_t table_rows = block_tile.rows + slab_depth;
static_assert(slab_depth % stage_depth == 0 && slab_depth < row_run::no_split);

struct block_stage {
    alignas(16) float a[block_tile.rows * a_stride];
    alignas(16) float b[stage_depth * block_tile.columns];
};

struct block_state {
    block_stage stages[2];  // one is multiplied, one filled
    // Rows of A, then those of B: from the slab's first column and from the tile's.
    const float* places[2][table_rows];
    std::uint16_t splits[table_rows];

    PENSTOCK_D PENSTOCK_INLINE void set(std::uint32_t row, const row_run& run) {
        places[0][row] = run.front, places[1][row] = run.back, splits[row] = run.split;
    }
    PENSTOCK_D PENSTOCK_INLINE const float* number(std::uint32_t row, std::uint32_t i) const {
        return places[i < splits[row] ? 0 : 1][row] + i;
    }
    // Between slabs: half of the tile's rows.
    PENSTOCK_D float* rows() { return stages[0].a; }
};
static_assert(sizeof(block_state::stages) >=
              block_tile.rows / 2 * block_tile.columns * sizeof(float));
static_assert(sizeof(block_state) <= 48 * 1024 - 64,
              "static shared memory of a block, with the word of penstock::block");

// The block's. By a function, so that code that is not inlined knows it for shared memory.
PENSTOCK_D PENSTOCK_INLINE block_state& shared_state() {
    __shared__ block_state state;
    return state;
}

// A thread's place in the 16 by 16 of the block. The warp has 4 by 8; lane bits 0 and 4 go down and
// the others across, so that the half of a warp that reads 16 bytes each at a time reads two rows
// of A and 128 bytes of a row of B.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t thread_down() {
    return threadIdx.x / 64 * 4 + threadIdx.x / 16 % 2 * 2 + threadIdx.x % 2;
}
PENSTOCK_D PENSTOCK_INLINE std::uint32_t thread_across() {
    return threadIdx.x / 32 % 2 * 8 + threadIdx.x / 2 % 8;
}

// Which row or column of the tile a thread's sum belongs to: four side by side, and four that lie
// 64 further.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t place_of_sum(std::uint32_t thread, std::uint32_t i) {
    return thread * 4 + i % 4 + i / 4 * 64;
}

// What there is of a slab.
struct slab_size {
    std::uint32_t rows, depth, columns;
};

// Copies from device to shared memory, which go on while the thread does; wait_for_copies waits for
// those that it began. Shared memory by its own 32-bit address: made from a pointer it would cost
// several instructions each time. GPUs before Ampere copy at once.
template <std::uint32_t Floats>
PENSTOCK_D PENSTOCK_INLINE void begin_copy(std::uint32_t to, const float* from) {
    static_assert(Floats == 4 || Floats == 1);
#if __CUDA_ARCH__ >= 800
    if constexpr (Floats == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
#else
    using unit = std::conditional_t<Floats == 4, float4, float>;
    *static_cast<unit*>(__cvta_shared_to_generic(to)) = *reinterpret_cast<const unit*>(from);
#endif
}
PENSTOCK_D PENSTOCK_INLINE void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
PENSTOCK_D PENSTOCK_INLINE std::uint32_t shared_address(const void* at) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(at));
}

// A thread's share of a panel of Rows rows and Columns columns, Floats numbers at a time. The
// places are looked up together, and then the copies begun, so that a thread waits for the table
// once.
template <std::uint32_t Floats, std::uint32_t Rows, std::uint32_t Columns, typename From,
          typename Begin>
PENSTOCK_D PENSTOCK_INLINE void share_panel(const From& from, const Begin& begin) {
    constexpr std::uint32_t of_row = Columns / Floats, count = Rows * of_row / block_threads;
    const std::uint32_t first = threadIdx.x / of_row, in = threadIdx.x % of_row * Floats;
    const float* places[count];
#pragma unroll
    for (std::uint32_t i = 0; i < count; ++i)
        places[i] = from(first + i * (block_threads / of_row), in);
#pragma unroll
    for (std::uint32_t i = 0; i < count; ++i)
        begin(first + i * (block_threads / of_row), in, places[i]);
}

// Whole block. Begins to copy the stage that begins at `first`, to where a stage has this address.
// What is not there stays as it is.
template <std::uint32_t Floats>
PENSTOCK_D PENSTOCK_INLINE void fill_stage(const block_state& s, std::uint32_t stage,
                                           const slab_size& size, std::uint32_t first) {
    share_panel<Floats, block_tile.rows, stage_depth>(
        [&](std::uint32_t row, std::uint32_t in) { return s.number(row, first + in); },
        [&](std::uint32_t row, std::uint32_t in, const float* from) {
            if (row < size.rows && first + in < size.depth)
                begin_copy<Floats>(stage + (row * a_stride + in) * sizeof(float), from);
        });
    share_panel<Floats, stage_depth, block_tile.columns>(
        [&](std::uint32_t row, std::uint32_t in) {
            return s.number(block_tile.rows + first + row, in);
        },
        [&](std::uint32_t row, std::uint32_t in, const float* from) {
            if (first + row < size.depth && in < size.columns)
                begin_copy<Floats>(stage + offsetof(block_stage, b) +
                                       (row * block_tile.columns + in) * sizeof(float),
                                   from);
        });
}

// Eight numbers of a row of B, each 8 columns that belong to the thread.
PENSTOCK_D PENSTOCK_INLINE void load_eight(const float* row, float (&out)[8]) {
    *reinterpret_cast<float4*>(out) = *reinterpret_cast<const float4*>(row);
    *reinterpret_cast<float4*>(out + 4) = *reinterpret_cast<const float4*>(row + 64);
}

PENSTOCK_D PENSTOCK_INLINE void add_products(float a, const float (&b)[8], float (&sums)[8]) {
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) sums[j] = __fmaf_rn(a, b[j], sums[j]);
}

// The first `depth` columns of A and rows of B that a stage has, to the thread's sums.
PENSTOCK_D PENSTOCK_INLINE void add_stage(const block_stage& stage, std::uint32_t depth,
                                          float (&sums)[8][8]) {
    const float* const a = stage.a + thread_down() * 4 * a_stride;
    const float* const b = stage.b + thread_across() * 4;
    std::uint32_t at = 0;
#pragma unroll 1
    for (; at + 4 <= depth; at += 4) {
        float across[4][8];
#pragma unroll
        for (std::uint32_t i = 0; i < 4; ++i)
            load_eight(b + (at + i) * block_tile.columns, across[i]);
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i) {
            const float4 four =
                *reinterpret_cast<const float4*>(a + place_of_sum(0, i) * a_stride + at);
            add_products(four.x, across[0], sums[i]);
            add_products(four.y, across[1], sums[i]);
            add_products(four.z, across[2], sums[i]);
            add_products(four.w, across[3], sums[i]);
        }
    }
#pragma unroll 1
    for (; at < depth; ++at) {
        float across[8];
        load_eight(b + at * block_tile.columns, across);
#pragma unroll
        for (std::uint32_t i = 0; i < 8; ++i)
            add_products(a[place_of_sum(0, i) * a_stride + at], across, sums[i]);
    }
}

// Whole block; the table is filled, and all threads know it. Adds the slab to the thread's 64
// totals. Afterwards nothing is read by the table, but shared memory may still be in use by other
// threads. Called directly and not by address: by address it would save and bring back 55 registers
// each time.
template <std::uint32_t Floats>
PENSTOCK_D PENSTOCK_NOINLINE void add_slab(const slab_size size, float* totals) {
    const block_state& s = shared_state();
    const std::uint32_t stages = shared_address(s.stages);
    float sums[8][8];
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) sums[i / 8][i % 8] = 0;
    fill_stage<Floats>(s, stages, size, 0);
#pragma unroll 1
    for (std::uint32_t first = 0; first < size.depth; first += stage_depth) {
        const std::uint32_t number = first / stage_depth % 2;
        wait_for_copies();
        __syncthreads();  // the stage is there for all threads, and none multiplies the one
                          // before any more
        if (first + stage_depth < size.depth)
            fill_stage<Floats>(s, stages + (1 - number) * sizeof(block_stage), size,
                               first + stage_depth);
        add_stage(s.stages[number], lesser(stage_depth, size.depth - first), sums);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < 64; ++i) totals[i] += sums[i / 8][i % 8];
}

inline constexpr std::uint64_t copied_slab_floats =
    (std::uint64_t{block_tile.rows} + block_tile.columns) * slab_depth;

// Pages that a block has pinned at a time, at most. 0: pages are too small for a slab's part of a
// row to lie in two of them.
constexpr std::uint64_t most_pages_pinned(const product_view& v, std::uint64_t page_bytes) {
    constexpr std::uint64_t a_bytes = slab_depth * sizeof(float),
                            b_bytes = block_tile.columns * sizeof(float);
    if (page_bytes < a_bytes || page_bytes < b_bytes) return 0;
    // Parts begin at multiples of their length if rows do, and then no page cuts them.
    const std::uint64_t of_a = v.k * sizeof(float) % a_bytes == 0 ? 1 : 2,
                        of_b = v.n * sizeof(float) % b_bytes == 0 ? 1 : 2;
    return of_a * lesser<std::uint64_t>(block_tile.rows, v.m) +
           of_b * lesser<std::uint64_t>(slab_depth, v.k);
}

class page_rows {
public:
    struct held {
        held_row rows[(table_rows + block_threads - 1) / block_threads];
    };

    // `copies`: null, or copied_slab_floats of the block's own.
    PENSTOCK_D PENSTOCK_INLINE page_rows(const cached_matrices& matrices, float* copies)
        : from_(matrices), copies_(copies) {}

    PENSTOCK_D PENSTOCK_INLINE bool find(const block& g, const tile_place& at, std::uint64_t first,
                                         std::uint32_t depth, held& pins) const {
        bad_file which = bad_file::a;
        const slab_part a{at.row, at.rows, first, depth}, b{first, depth, at.column, at.columns};
        std::int64_t code = copies_ != nullptr ? copy(a, b, which) : bring(a, b, which);
        if (code != 0 && threadIdx.x % 32 == 0) note_error(from_.view, which, code);
        if (!g.all(code == 0)) return false;
        if (copies_ != nullptr) return point_to_copies(g, depth, at.columns);
        code = pin(a, b, pins, which);
        if (code != 0) note_error(from_.view, which, code);
        return g.all(code == 0);
    }

    PENSTOCK_D PENSTOCK_INLINE void release(held& pins) const {
#pragma unroll 1
        for (held_row& row : pins.rows) row.release(lane{}, from_.fs);
    }

private:
    // Of a matrix.
    struct slab_part {
        std::uint64_t row;
        std::uint32_t rows;
        std::uint64_t column;
        std::uint32_t columns;
    };

    // The rows of a part that are this warp's, side by side.
    PENSTOCK_D PENSTOCK_INLINE static slab_part share(const slab_part& part,
                                                      std::uint32_t most_rows) {
        const std::uint32_t of_warp = most_rows / block_warps,
                            begin = lesser(threadIdx.x / 32 * of_warp, part.rows);
        return {part.row + begin, lesser(of_warp, part.rows - begin), part.column, part.columns};
    }

    // Whole block, by warps: the slab to the block's own memory.
    PENSTOCK_D PENSTOCK_INLINE std::int64_t copy(const slab_part& a, const slab_part& b,
                                                 bad_file& which) const {
        const slab_part of_a = share(a, block_tile.rows), of_b = share(b, slab_depth);
        const std::int64_t code =
            fetch(which = bad_file::a, of_a, copies_ + (of_a.row - a.row) * a.columns);
        return code != 0
                   ? code
                   : fetch(which = bad_file::b, of_b, b_copies() + (of_b.row - b.row) * b.columns);
    }
    PENSTOCK_D PENSTOCK_INLINE std::int64_t fetch(bad_file which, const slab_part& part,
                                                  float* to) const {
        return part.rows == 0 ? 0
                              : from_.fetch(this_warp(), which, part.row, part.rows, part.column,
                                            part.columns, to);
    }
    PENSTOCK_D PENSTOCK_INLINE float* b_copies() const {
        return copies_ + std::uint64_t{block_tile.rows} * slab_depth;
    }

    PENSTOCK_D PENSTOCK_INLINE bool point_to_copies(const block& g, std::uint32_t a_width,
                                                    std::uint32_t b_width) const {
        for (std::uint32_t i = threadIdx.x; i < table_rows; i += block_threads)
            shared_state().set(i,
                               {i < block_tile.rows ? copies_ + i * a_width
                                                    : b_copies() + (i - block_tile.rows) * b_width,
                                nullptr, row_run::no_split});
        g.sync();  // the table is there
        return true;
    }

    // Whole block, by warps: makes the cache load what it does not have of the slab, by fetching a
    // little of each page.
    PENSTOCK_D PENSTOCK_INLINE std::int64_t bring(const slab_part& a, const slab_part& b,
                                                  bad_file& which) const {
        const std::uint64_t page = from_.fs.view.page_bytes();
        // Pinned, unless a page begins here.
        const bool held =
            from_.view.k * sizeof(float) % page == 0 && a.column * sizeof(float) % page != 0;
        const std::int64_t code =
            held ? 0 : touch(which = bad_file::a, share(a, block_tile.rows), slab_depth);
        return code != 0 ? code
                         : touch(which = bad_file::b, share(b, slab_depth), block_tile.columns);
    }
    // Parts are as long as `most_columns` at most.
    PENSTOCK_D PENSTOCK_INLINE std::int64_t touch(bad_file which, const slab_part& part,
                                                  std::uint32_t most_columns) const {
        const std::uint32_t some = ((from_.view.k | from_.view.n) & 3) == 0 ? 4 : 1;
        float* const to = shared_state().rows() + threadIdx.x / 32 * (slab_depth / block_warps * 4);
        std::int64_t code = fetch(which, {part.row, part.rows, part.column, some}, to);
        if (code == 0 && from_.columns_of(which) % most_columns != 0)
            code = fetch(which, {part.row, part.rows, part.column + part.columns - some, some}, to);
        return code;
    }

    // Whole block, by lanes.
    PENSTOCK_D PENSTOCK_INLINE std::int64_t pin(const slab_part& a, const slab_part& b, held& pins,
                                                bad_file& which) const {
#pragma unroll 1
        for (std::uint32_t i = threadIdx.x; i < table_rows; i += block_threads) {
            const bool is_a = i < block_tile.rows;
            const slab_part& part = is_a ? a : b;
            const std::uint32_t in = is_a ? i : i - block_tile.rows;
            which = is_a ? bad_file::a : bad_file::b;
            if (in >= part.rows) continue;
            const std::uint64_t row = (part.row + in) * from_.columns_of(which),
                                place = row + part.column;
            row_run run{};
            const std::int64_t code = pins.rows[i / block_threads].move(
                lane{}, from_.fs, from_.file_of(which), place, part.columns,
                is_a ? row + from_.view.k : place + part.columns, run);
            if (code != 0) return code;
            shared_state().set(i, run);
        }
        return 0;
    }

    const cached_matrices& from_;
    float* copies_;
};

// Can 16 bytes be copied at a time? All that is copied begins at a multiple of 4 numbers then, and
// pages do too.
PENSTOCK_D PENSTOCK_INLINE bool goes_by_four(const product_view& v) {
    return ((v.k | v.n) & 3) == 0;
}

// Whole block: the tile, 64 sums of it in each thread. False if a part could not be had.
PENSTOCK_D PENSTOCK_INLINE bool multiply_on_block(const block& g, const page_rows& source,
                                                  const product_view& v, const tile_place& at,
                                                  float* totals) {
    page_rows::held held;
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

}  // namespace penstock::matrix
