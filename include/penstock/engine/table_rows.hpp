// The rows of a table: equal pieces of one or more files, found by their numbers, and delivered
// whatever state their pages are in.
//
// The rows lie in runs: a run is a piece of one file in which rows follow each other. The host
// writes the runs before the table is used, and they stay as they are. The table holds a descriptor
// of each file, so a run's slot and generation are those of an open file.
//
// A row that cannot be had is delivered as zeros, and the table's note gets the first such row:
//   claimed    device memory; a group moves it from the host's `taken` to `taken` + 1 by
//              compare-and-swap, and then the note is its own
//   the note   host memory; that group writes it, `published` last (release, pairs with the host's
//              acquire)
//   taken      host memory, written by the host only, once it has read the note; until then later
//              errors are dropped
#pragma once

#include <cerrno>
#include <cstdint>

#include "penstock/engine/read.hpp"
#include "penstock/engine/row_units.hpp"

namespace penstock::engine {

enum class number_type : std::uint32_t { int32, int64, uint32, uint64 };

struct table_run {
    file_handle file;
    std::uint64_t first_byte;  // of its first row
    std::uint64_t first_row;   // its number in the table
    std::uint64_t rows;
    std::int32_t fd;  // the table's own
};

// The first row that could not be had.
struct alignas(64) table_note {
    std::int64_t code;
    std::int64_t number;  // as the caller gave it; an unsigned number keeps its bits
    std::uint64_t place;  // in the caller's list
    std::uint64_t is_listed;
    std::uint64_t published;  // counts notes
    std::uint64_t taken;
};

// Passed to kernels by value.
struct table_view {
    const table_run* runs;  // device memory
    table_run only;         // the first run, so that a table of one needs no look at `runs`
    std::uint64_t rows, row_bytes, stride_bytes;
    std::uint64_t rows_per_run;  // of every run but the last; 0: they differ
    std::uint32_t run_count;
    std::uint32_t
        low_bits;  // of all places of rows in their files, and of row_bytes, or-ed together
    std::uint64_t* claimed;
    table_note* note;
};

// A caller's list of row numbers.
struct number_list {
    const void* numbers;
    number_type type;
    bool has_padding;
    std::int64_t padding;

    PENSTOCK_HD PENSTOCK_INLINE std::int64_t at(std::uint64_t i) const {
        switch (type) {
            case number_type::int32: return static_cast<const std::int32_t*>(numbers)[i];
            case number_type::uint32: return static_cast<const std::uint32_t*>(numbers)[i];
            default: return static_cast<const std::int64_t*>(numbers)[i];
        }
    }
};

// The row is one of the table.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t run_number(const table_view& t, std::uint64_t row) {
    if (t.run_count == 1) return 0;
    if (t.rows_per_run != 0) return row / t.rows_per_run;
    std::uint32_t low = 0, high = t.run_count - 1;  // the last run that begins at `row` or before
    while (low < high) {
        const std::uint32_t middle = high - (high - low) / 2;
        if (t.runs[middle].first_row <= row) low = middle;
        else high = middle - 1;
    }
    return low;
}
PENSTOCK_HD PENSTOCK_INLINE const table_run& run_of(const table_view& t, std::uint64_t row) {
    return t.run_count == 1 ? t.only : t.runs[run_number(t, row)];
}

PENSTOCK_HD PENSTOCK_INLINE row_source source_of(const table_view& t, std::uint64_t row) {
    if (row >= t.rows) return {row_source::outside, 0, nullptr};
    const table_run& run = run_of(t, row);
    return {row_source::in_file, run.first_byte + (row - run.first_row) * t.stride_bytes,
            &run.file};
}

// A row of a list.
PENSTOCK_HD PENSTOCK_INLINE row_source source_of(const table_view& t, const number_list& list,
                                                 std::uint64_t i) {
    const std::int64_t number = list.at(i);
    if (list.has_padding && number == list.padding) return {row_source::padding, 0, nullptr};
    return source_of(t, static_cast<std::uint64_t>(number));  // a negative number is too large
}

// The caller of so few rows waits for the slowest of them.
inline constexpr std::uint64_t few_rows = 2048;

// The rows of a list and their places, as copies by unit take them.
struct listed_table_rows {
    const cache_view& c;
    const table_view& t;
    const number_list& list;
    std::byte* out;
    std::uint64_t out_stride_bytes;
    window_word only_window;  // of a table of one run
    std::uint64_t count;      // of the whole list, which many groups may share out

    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t row_bytes() const { return t.row_bytes; }
    PENSTOCK_HD PENSTOCK_INLINE row_source source(std::uint64_t i) const {
        return source_of(t, list, i);
    }
    PENSTOCK_HD PENSTOCK_INLINE window_word window_for(const file_handle& f) const {
        return t.run_count == 1 ? only_window : window_of(c, f);
    }
    PENSTOCK_HD PENSTOCK_INLINE std::byte* place(std::uint64_t i) const {
        return out + i * out_stride_bytes;
    }
    // An entry takes as long as a list of few rows, so at most one in four such lists has one.
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t entry_rate() const {
        const std::uint32_t rate = entry_rate_of(c, t.row_bytes, c.page_bytes());
        if (c.admit_one_in <= 1 || count > few_rows) return rate;
        const auto of_list = static_cast<std::uint32_t>(4 * count);
        return of_list > rate ? of_list : rate;
    }
};

// Leader only.
PENSTOCK_HD PENSTOCK_NOINLINE inline void note_row(const table_view& t, std::int64_t code,
                                                   std::int64_t number, std::uint64_t place,
                                                   bool is_listed) {
    const std::uint64_t taken = look_taken(&t.note->taken);
    if (!claim_note(t.claimed, taken)) return;
    t.note->code = code;
    t.note->number = number;
    t.note->place = place;
    t.note->is_listed = is_listed ? 1 : 0;
    publish_note(&t.note->published, taken + 1);
}

// Whole group. Copies a row to `to`, or zeros if it cannot be had. Returns the row's bytes, or a
// negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t deliver_row(const Group& g, const cache_view& c,
                                                     const table_view& t, const row_source& source,
                                                     std::byte* to, std::int64_t stop = 0) {
    std::int64_t done = stop != 0 ? stop : -ERANGE;
    if (stop == 0 && source.is == row_source::in_file) {
        done = read_file(g, c, *source.file, to, t.row_bytes, source.at);
        // Fewer bytes than the row has: the file was cut.
        if (done >= 0 && done < static_cast<std::int64_t>(t.row_bytes)) done = -ESTALE;
    }
    if (done < 0) {
        g.sync();  // every thread's part of what was delivered comes before the zeros
        g.zero(to, t.row_bytes);
    }
    return source.is == row_source::padding ? static_cast<std::int64_t>(t.row_bytes) : done;
}

#if defined(__CUDACC__)

// Whole group. Delivers rows that are in the cache, or with `Windows` in windows too, from row
// `begin` on. Returns the first row that it did not deliver, or a row before it.
template <bool Windows, typename Group>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t copy_present_rows(const Group& g, const cache_view& c,
                                                           const listed_table_rows& rows,
                                                           std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t low =
        rows.t.low_bits | reinterpret_cast<std::uintptr_t>(rows.out) | rows.out_stride_bytes;
    if ((low & 15) == 0) return copy_rows_by_unit<unit_for<16>, Windows>(g, c, rows, begin, end);
    // Rows at odd places take the copy that knows windows too: one body for each unit is enough.
    if constexpr (!Windows) return begin;
    if ((low & 7) == 0) return copy_rows_by_unit<unit_for<8>, true>(g, c, rows, begin, end);
    if ((low & 3) == 0) return copy_rows_by_unit<unit_for<4>, true>(g, c, rows, begin, end);
    return copy_rows_by_unit<unit_for<1>, true>(g, c, rows, begin, end);
}

#endif

// Whole group. Delivers rows [begin, end) of the list. Returns how many could not be had.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t deliver_rows(const Group& g, const cache_view& c,
                                                       const listed_table_rows& rows,
                                                       std::uint64_t begin, std::uint64_t end) {
    std::uint64_t failed = 0;
    const std::int64_t stop = shared_stop_code(g, c);
    // The leanest copy knows the cache alone. A caller of few rows waits for each trip to memory,
    // so it pays for no look in vain.
    [[maybe_unused]] bool misses = rows.count <= few_rows && rows.only_window != 0;
    for (std::uint64_t i = begin; i < end; ++i) {
#if PENSTOCK_ON_DEVICE
        if (stop == 0 && !misses) i = copy_present_rows<false>(g, c, rows, i, end);
        if (i >= end) break;
        misses = true;  // for the rest of this call
        if (stop == 0) i = copy_present_rows<true>(g, c, rows, i, end);
        if (i >= end) break;
#endif
        const std::int64_t done = deliver_row(g, c, rows.t, rows.source(i), rows.place(i), stop);
        if (done >= 0) continue;
        ++failed;
        if (g.is_leader()) note_row(rows.t, done, rows.list.at(i), i, true);
    }
    return failed;
}

// Whole group. The same, from the parts of a call.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t deliver_list(const Group& g, const cache_view& c,
                                                       const table_view& t, const number_list& list,
                                                       std::byte* out,
                                                       std::uint64_t out_stride_bytes,
                                                       std::uint64_t begin, std::uint64_t end,
                                                       std::uint64_t count) {
    const window_word window =
        t.run_count == 1 ? g.broadcast(g.is_leader() ? window_of(c, t.only.file) : 0) : 0;
    return deliver_rows(g, c, listed_table_rows{c, t, list, out, out_stride_bytes, window, count},
                        begin, end);
}

// Whole group. Brings the pages of rows [begin, end) of the list into the cache. Rows that cannot
// be had are noted.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void bring_in_list(const Group& g, const cache_view& c,
                                               const table_view& t, const number_list& list,
                                               std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end; ++i) {
        const row_source source = source_of(t, list, i);
        std::int64_t done = source.is == row_source::outside ? -ERANGE : 0;
        if (source.is == row_source::in_file)
            done = bring_in(g, c, source.file->slot, source.at, source.at + t.row_bytes);
        if (done < 0 && g.is_leader()) note_row(t, done, list.at(i), i, true);
    }
}

}  // namespace penstock::engine
