// The work of a group, the same for every method: items one after the other, and the bands that it
// ends.
//
// A source has `expect(g, first, count)`, which says what is wanted next; `piece take(g, first,
// count)`, which gives numbers of the matrix from place `first` on, as many as it has side by side
// and at least one, or a negative errno as their count; and `give_back(g, piece)`.
#pragma once

#include <cstdint>

#include "matvec_view.hpp"
#include "row_sum.hpp"

namespace penstock::matvec {

// Numbers of the matrix that lie in one place, for those sources that have them all.
struct numbers_in_memory {
    struct piece {
        const float* data;
        std::int64_t count;
    };
    const float* data;  // of the number at place `first`
    std::uint64_t first;

    template <typename Group>
    PENSTOCK_HD void expect(const Group&, std::uint64_t, std::uint64_t) const {}
    template <typename Group>
    PENSTOCK_HD piece take(const Group&, std::uint64_t from, std::uint64_t count) const {
        return {data + (from - first), static_cast<std::int64_t>(count)};
    }
    template <typename Group>
    PENSTOCK_HD void give_back(const Group&, const piece&) const {}
};

// Whole group. 0, or a negative errno from the source.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t sum_item(const Group& g, const Source& source,
                                                  const matvec_view& v, const item_place& at) {
    row_sum<Group> sum;
    sum.clear();
    const stretch all = at.elements(v.columns);
    source.expect(g, all.begin, all.count());
    std::uint64_t row = at.rows.begin;
    for (std::uint64_t place = all.begin; place < all.end;) {
        const auto piece = source.take(g, place, all.end - place);
        if (piece.count <= 0) return piece.count;
        const std::uint64_t first = place, stop = place + static_cast<std::uint64_t>(piece.count);
        while (place < stop) {
            const std::uint64_t row_begin = row * v.columns, row_end = row_begin + at.columns.end,
                                until = lesser(row_end, stop);
            sum.add(g, v, piece.data + (place - first), v.x + (place - row_begin), place,
                    until - place);
            place = until;
            if (place != row_end) continue;
            const float total = sum.total(g);
            if (g.is_leader()) v.sums[row * v.segments + at.segment] = total;
            sum.clear();
            ++row;
        }
        source.give_back(g, piece);
    }
    return 0;
}

// Whole group, which sees the sums. Adds the segments of rows that have several.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void add_segments(const Group& g, const matvec_view& v,
                                              const stretch& rows) {
    if (v.segments == 1) return;
    for (std::uint64_t row = rows.begin; row < rows.end; ++row) {
        const float total = row_sum<Group>::total_of(g, v.sums + row * v.segments, v.segments);
        if (g.is_leader()) v.y[row] = total;
    }
    g.sync();  // the leader's results are there for all
}

// Whole group. `stop` as in take_item. `write(rows)`: brings results to their file; 0 or a negative
// errno.
template <typename Group, typename Source, typename Stop, typename Write>
PENSTOCK_HD PENSTOCK_INLINE void sum_items(const Group& g, const Source& source,
                                           const matvec_view& v, const Stop& stop,
                                           const Write& write) {
    const std::uint64_t count = v.item_count();
    for (std::uint64_t item = apps::take_item(g, v.totals, count, stop); item < count;
         item = apps::take_item(g, v.totals, count, stop)) {
        const item_place at = place_of(v, item);
        if (const std::int64_t code = sum_item(g, source, v, at); code != 0) {
            if (g.is_leader()) note_error(v, bad_file::matrix, code);
            continue;
        }
        const std::uint64_t band = at.rows.begin / band_rows;
        const stretch rows = rows_of_band(v, band);
        const std::uint64_t parts =
            v.segments == 1 ? pieces_of(rows.count(), v.item_rows) : rows.count() * v.segments;
        if (!apps::ends_last(g, &v.ended[band], parts)) continue;
        add_segments(g, v, rows);
        if (const std::int64_t code = write(rows); code != 0 && g.is_leader())
            note_error(v, bad_file::result, code);
    }
}

}  // namespace penstock::matvec
