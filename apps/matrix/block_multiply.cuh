// Tiles on a thread block of a GPU, slab by slab (block_sums.cuh), and where the rows of a slab
// lie: in the page cache.
#pragma once

#include <cstdint>

#include "block_sums.cuh"
#include "cached_rows.hpp"
#include "penstock/group/gpu_groups.cuh"

namespace penstock::matrix {

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
template <typename Source>
PENSTOCK_D PENSTOCK_INLINE bool multiply_on_block(const block& g, const Source& source,
                                                  const product_view& v, const tile_place& at,
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
                                                        const product_view& v, const Stop& stop,
                                                        const Write& write) {
    const std::uint64_t count = v.tile_count(block_tile);
    for (std::uint64_t tile = apps::take_item(g, v.totals, count, stop); tile < count;
         tile = apps::take_item(g, v.totals, count, stop)) {
        const tile_place at = place_of(v, block_tile, tile);
        float totals[64];
        if (multiply_on_block(g, source, v, at, totals)) write(at, totals);
    }
}

}  // namespace penstock::matrix
