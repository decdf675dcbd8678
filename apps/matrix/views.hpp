// What a product needs, as the code that runs on a GPU or on CPU threads sees it: pointers into
// that device's memory, and how the work is cut for the groups.
#pragma once

#include <cstdint>

#include "common/work_items.hpp"
#include "lane_kernels.hpp"

namespace penstock::matrix {

using apps::lesser;
using apps::pieces_of;

// Which file an error belongs to.
enum class bad_file : std::uint32_t { a, b, result };

template <typename View>
PENSTOCK_HD PENSTOCK_INLINE void note_error(const View& v, bad_file which, std::int64_t code) {
    apps::note_error(v.totals, static_cast<std::uint32_t>(which), code);
}

// A matrix times a vector.
//
// The matrix lies in its file row by row. It is cut into items that follow each other there: some
// whole rows, or, of rows that are longer than a segment, one segment of one row. Rows are gathered
// in bands; the group that ends a band's last item writes the band's results.

// Part of the order of additions, docs/apps/matrix.md: the same for all methods.
inline constexpr std::uint64_t segment_columns = 65536;
inline constexpr std::uint64_t band_rows = 4096;         // 16 KiB of results
inline constexpr std::uint64_t item_bytes = 128u << 10;  // of rows that are shorter

// Rows of an item of whole rows: a power of two, so that bands are made of whole items.
constexpr std::uint64_t rows_of_item(std::uint64_t columns) {
    std::uint64_t rows = 1;
    while (rows < band_rows && 2 * rows * columns * sizeof(float) <= item_bytes) rows *= 2;
    return rows;
}

struct vector_view {
    std::uint64_t rows;
    std::uint64_t columns;
    std::uint64_t segments;  // of a row
    std::uint64_t item_rows;
    const float* x;
    float* sums;           // of each segment of each row
    float* y;              // the same memory, if rows have one segment
    std::uint64_t* ended;  // of each band: items that were summed
    apps::work_totals* totals;
    add_products_function add_products;  // of CPU threads

    PENSTOCK_HD std::uint64_t item_count() const {
        return segments == 1 ? pieces_of(rows, item_rows) : rows * segments;
    }
    PENSTOCK_HD std::uint64_t band_count() const { return pieces_of(rows, band_rows); }
};

// Rows or elements of a row, from begin to before end.
struct stretch {
    std::uint64_t begin, end;

    PENSTOCK_HD std::uint64_t count() const { return end - begin; }
};

// One item. Either all columns, or one row.
struct item_place {
    stretch rows, columns;
    std::uint64_t segment;

    // Places of its elements in the matrix.
    PENSTOCK_HD stretch elements(std::uint64_t all_columns) const {
        return {rows.begin * all_columns + columns.begin,
                (rows.end - 1) * all_columns + columns.end};
    }
};

PENSTOCK_HD PENSTOCK_INLINE item_place place_of(const vector_view& v, std::uint64_t item) {
    if (v.segments == 1) {
        const std::uint64_t first = item * v.item_rows;
        return {{first, lesser(first + v.item_rows, v.rows)}, {0, v.columns}, 0};
    }
    const std::uint64_t row = item / v.segments, segment = item % v.segments,
                        first = segment * segment_columns;
    return {{row, row + 1}, {first, lesser(first + segment_columns, v.columns)}, segment};
}

PENSTOCK_HD PENSTOCK_INLINE stretch rows_of_band(const vector_view& v, std::uint64_t band) {
    return {band * band_rows, lesser((band + 1) * band_rows, v.rows)};
}

// A matrix times a matrix.
//
// The result is cut into tiles, which groups take one after the other: 128 by 128 numbers for a
// thread block, 96 by 512 for a CPU thread. A tile is made slab by slab along the rows of A and the
// columns of B.

// Part of the order of additions, docs/apps/matrix.md: the same for all methods.
inline constexpr std::uint32_t slab_depth = 512;

// How the result is cut.
struct tile_shape {
    std::uint32_t rows, columns;
};

// Where a tile lies in the result.
struct tile_place {
    std::uint64_t row, column;
    std::uint32_t rows, columns;
};

struct product_view {
    std::uint64_t m, n, k;         // A is m by k, B k by n
    const std::uint64_t* numbers;  // 0, 1, 2, ... up to the most rows of A or B: which to gather
    apps::work_totals* totals;
    std::uint64_t together = 16;  // rows of tiles

    PENSTOCK_HD std::uint64_t tile_count(tile_shape shape) const {
        return pieces_of(m, shape.rows) * pieces_of(n, shape.columns);
    }
};

// Tiles are numbered so that those which are made at the same time need the same rows of A and
// columns of B: some rows of tiles, column by column, then the next ones. B is read once for each
// time, and the rows are complete at its end.
PENSTOCK_HD PENSTOCK_INLINE tile_place place_of(const product_view& v, tile_shape shape,
                                                std::uint64_t tile) {
    const std::uint64_t together = v.together, down = pieces_of(v.m, shape.rows),
                        across = pieces_of(v.n, shape.columns);
    const std::uint64_t first = tile / (together * across) * together,
                        height = lesser(together, down - first), in = tile % (together * across);
    const std::uint64_t row = (first + in % height) * shape.rows,
                        column = in / height * shape.columns;
    return {row, column, static_cast<std::uint32_t>(lesser<std::uint64_t>(shape.rows, v.m - row)),
            static_cast<std::uint32_t>(lesser<std::uint64_t>(shape.columns, v.n - column))};
}

}  // namespace penstock::matrix
