// What a product needs, as the code that runs on a GPU or on CPU threads sees it: pointers into
// that device's memory.
//
// The matrix lies in its file row by row. It is cut into items that follow each other there: some
// whole rows, or, of rows that are longer than a segment, one segment of one row. Rows are gathered
// in bands; the group that ends a band's last item writes the band's results.
#pragma once

#include <cstdint>

#include "common/work_items.hpp"
#include "products.hpp"

namespace penstock::matvec {

// Part of the order of additions, docs/apps/matrix.md: the same for all methods.
inline constexpr std::uint64_t segment_columns = 65536;
inline constexpr std::uint64_t band_rows = 4096;         // 16 KiB of results
inline constexpr std::uint64_t item_bytes = 128u << 10;  // of rows that are shorter

using apps::lesser;
using apps::pieces_of;

// Rows of an item of whole rows: a power of two, so that bands are made of whole items.
constexpr std::uint64_t rows_of_item(std::uint64_t columns) {
    std::uint64_t rows = 1;
    while (rows < band_rows && 2 * rows * columns * sizeof(float) <= item_bytes) rows *= 2;
    return rows;
}

enum class bad_file : std::uint32_t { matrix, vector, result };

struct matvec_view {
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

PENSTOCK_HD PENSTOCK_INLINE item_place place_of(const matvec_view& v, std::uint64_t item) {
    if (v.segments == 1) {
        const std::uint64_t first = item * v.item_rows;
        return {{first, lesser(first + v.item_rows, v.rows)}, {0, v.columns}, 0};
    }
    const std::uint64_t row = item / v.segments, segment = item % v.segments,
                        first = segment * segment_columns;
    return {{row, row + 1}, {first, lesser(first + segment_columns, v.columns)}, segment};
}

PENSTOCK_HD PENSTOCK_INLINE stretch rows_of_band(const matvec_view& v, std::uint64_t band) {
    return {band * band_rows, lesser((band + 1) * band_rows, v.rows)};
}

PENSTOCK_HD PENSTOCK_INLINE void note_error(const matvec_view& v, bad_file which,
                                            std::int64_t code) {
    apps::note_error(v.totals, static_cast<std::uint32_t>(which), code);
}

}  // namespace penstock::matvec
