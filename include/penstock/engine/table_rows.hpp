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

#include "penstock/base/standard.hpp"
#include "penstock/engine/missing_rows.hpp"

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
    std::uint64_t is_unsigned;  // of a list
    std::uint64_t published;    // counts notes
    std::uint64_t taken;
};

// Passed to kernels by value.
struct table_view {
    const table_run* runs;  // device memory
    table_run only;         // the first run, so that a table of one needs no look at `runs`
    std::uint64_t rows, row_bytes, stride_bytes;
    std::uint64_t rows_per_run;  // of every run but the last; 0: they differ
    std::uint32_t run_count;
    std::uint32_t parts;     // the most pages that a row touches
    std::uint32_t low_bits;  // of all places of rows in their files, and of row_bytes, or-ed
    std::uint64_t* claimed;
    table_note* note;
};

// A caller's list of row numbers.
struct number_list {
    const void* numbers;
    number_type type;
    bool has_padding;
    std::int64_t padding;

    PENSTOCK_HD PENSTOCK_INLINE bool is_unsigned() const {
        return type == number_type::uint32 || type == number_type::uint64;
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t number_bytes() const {
        return type == number_type::int32 || type == number_type::uint32 ? 4 : 8;
    }
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

// One in so many rows of a list that come through a window draws its page. An entry takes as long
// as a list of few rows, so at most one in eight such lists has one.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t draw_rate_of(const cache_view& c, const table_view& t,
                                                       std::uint64_t count) {
    const std::uint32_t rate = draw_rate_of(c, t.row_bytes, c.page_bytes());
    if (c.admit_one_in <= 1 || count > few_rows) return rate;
    const auto of_list = static_cast<std::uint32_t>(8 * count);
    return of_list > rate ? of_list : rate;
}

// The rows of a list and their places, as copies by the batch take them.
struct listed_table_rows {
    const cache_view& c;
    const table_view& t;
    const number_list& list;
    std::byte* out;
    std::uint64_t out_stride_bytes;
    std::uint64_t count;      // of the whole list, which many groups may share out
    window_word only_window;  // of a table of one run

    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t row_bytes() const { return t.row_bytes; }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t parts() const { return t.parts; }
    PENSTOCK_HD PENSTOCK_INLINE row_source source(std::uint64_t i) const {
        return source_of(t, list, i);
    }
    PENSTOCK_HD PENSTOCK_INLINE window_word window_for(const file_handle& f) const {
        return t.run_count == 1 ? only_window : window_behind_hits(c, f);
    }
    PENSTOCK_HD PENSTOCK_INLINE std::byte* place(std::uint64_t i) const {
        return out + i * out_stride_bytes;
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t draw_rate() const {
        return draw_rate_of(c, t, count);
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t low_bits() const {
        return t.low_bits | reinterpret_cast<std::uintptr_t>(out) | out_stride_bytes;
    }
};

// One row, as copies by the batch take it.
struct single_table_row {
    const cache_view& c;
    const table_view& t;
    row_source where;
    std::byte* to;

    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t row_bytes() const { return t.row_bytes; }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t parts() const { return t.parts; }
    PENSTOCK_HD PENSTOCK_INLINE row_source source(std::uint64_t) const { return where; }
    PENSTOCK_HD PENSTOCK_INLINE window_word window_for(const file_handle& f) const {
        return window_behind_hits(c, f);
    }
    PENSTOCK_HD PENSTOCK_INLINE std::byte* place(std::uint64_t) const { return to; }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t draw_rate() const { return draw_rate_of(c, t, 1); }
    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t low_bits() const {
        return t.low_bits | reinterpret_cast<std::uintptr_t>(to);
    }
};

// Leader only.
PENSTOCK_HD PENSTOCK_NOINLINE inline void note_row(const table_view& t, std::int64_t code,
                                                   std::int64_t number, std::uint64_t place,
                                                   bool is_listed, bool is_unsigned) {
    const std::uint64_t taken = look_taken(&t.note->taken);
    if (!claim_note(t.claimed, taken)) return;
    t.note->code = code;
    t.note->number = number;
    t.note->place = place;
    t.note->is_listed = is_listed ? 1 : 0;
    t.note->is_unsigned = is_unsigned ? 1 : 0;
    publish_note(&t.note->published, taken + 1);
}

PENSTOCK_HD PENSTOCK_INLINE void note_listed_row(const table_view& t, std::int64_t code,
                                                 const number_list& list, std::uint64_t i) {
    note_row(t, code, list.at(i), i, true, list.is_unsigned());
}

// Whole group, before a row that lies in a file is loaded, and after it was copied. Is it cut off?
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool is_row_gone(const Group& g, const cache_view& c,
                                             const table_view& t, const row_source& source) {
    if (c.writes == nullptr) return false;
    begin_recheck();  // by every thread: its bytes were read before the size is looked at
    g.sync();
    return g.broadcast(g.is_leader() && is_cut_off(c, source.file->slot, source.at, t.row_bytes));
}

// Whole group, for a row that was not present a moment ago. Copies it to `to`, or zeros if it
// cannot be had. Returns the row's bytes, or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t deliver_alone(const Group& g, const cache_view& c,
                                                       const table_view& t,
                                                       const row_source& source, std::byte* to) {
    std::int64_t done = -ERANGE;
    if (source.is == row_source::in_file) {
        done = shared_stop_code(g, c);
        if (done == 0 && source.at < source.file->size_bytes && !is_row_gone(g, c, t, source)) {
            std::uint64_t have = 0;
            // A read ends before a page that cannot be had. Only one that begins there tells why.
            do {
                done = read_rest(g, c, source.file->slot, to + have, t.row_bytes - have,
                                 source.at + have, 0);
                if (done > 0) have += static_cast<std::uint64_t>(done);
            } while (done > 0 && have < t.row_bytes);
            if (done > 0) done = static_cast<std::int64_t>(have);
            if (c.read_ahead_pages != 0) read_ahead(g, c, source.file->slot, source.at, done);
            if (have > 0 && is_row_gone(g, c, t, source)) done = 0;
        }
        if (done == 0) done = -ESTALE;  // the file was cut
    }
    if (done < 0) {
        g.sync();  // every thread's part of what was delivered comes before the zeros
        // No store of frames: the caller's memory may be shared or local.
        for (std::uint64_t i = g.rank(); i < t.row_bytes; i += g.size()) to[i] = std::byte{0};
    }
    return source.is == row_source::padding ? static_cast<std::int64_t>(t.row_bytes) : done;
}

// Whole group, after rows [i, i + delivered) of the list were copied, which lie in files. Returns
// how many of them come before the first that was cut off meanwhile.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t rows_left(const Group& g, const cache_view& c,
                                                   const listed_table_rows& rows, std::uint64_t i,
                                                   std::int64_t delivered) {
    if (c.writes == nullptr || delivered <= 0) return delivered;
    begin_recheck();  // by every thread: the rows were read before the sizes are looked at
    g.sync();
    std::int64_t left = 0;
    if (g.is_leader())
        for (; left < delivered; ++left) {
            const row_source source = rows.source(i + static_cast<std::uint64_t>(left));
            if (is_cut_off(c, source.file->slot, source.at, rows.row_bytes())) break;
        }
    return share_code(g, left);
}

// Whole group. The same for row `i` of a list, and where that goes well for some that follow. Their
// pages are loaded together. Returns how many rows it delivered, or the negative errno of row `i`,
// which is noted.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t deliver_listed(const Group g, const cache_view& c,
                                                          const listed_table_rows rows,
                                                          std::uint64_t i, std::uint64_t end) {
    const row_source source = rows.source(i);
    if (source.is == row_source::in_file && shared_stop_code(g, c) == 0) {
        if (is_linked(c)) {
            const std::uint64_t next = copy_far_rows(g, c, rows, i, end);
            if (next > i) return static_cast<std::int64_t>(next - i);
        }
        const file_handle f = handle_of(g, c, source.file->slot);
        std::uint64_t failed = 0;
        const std::int64_t delivered =
            rows_left(g, c, rows, i, deliver_missing(g, c, f, rows, i, end, failed));
        if (delivered > 0) {
            if (c.read_ahead_pages != 0)
                read_ahead(g, c, f.slot, source.at, static_cast<std::int64_t>(rows.row_bytes()));
            return delivered;
        }
    }
    const std::int64_t done = deliver_alone(g, c, rows.t, source, rows.place(i));
    if (done < 0 && g.is_leader()) note_listed_row(rows.t, done, rows.list, i);
    return done < 0 ? done : 1;
}

// Whole group. The same for a row by its number.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t deliver_numbered(const Group g, const cache_view& c,
                                                            const table_view& t,
                                                            std::uint64_t number, std::byte* to) {
    const std::int64_t done = deliver_alone(g, c, t, source_of(t, number), to);
    if (done < 0 && g.is_leader())
        note_row(t, done, static_cast<std::int64_t>(number), 0, false, false);
    return done;
}

// Whole group. Copies a row to `to`, or zeros if it cannot be had, with a note. Returns the row's
// bytes, or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t deliver_row(const Group& g, const cache_view& c,
                                                     const table_view& t, std::uint64_t number,
                                                     std::byte* to) {
    const single_table_row row{c, t, source_of(t, number), to};
    if (copy_present_rows(g, c, row, 0, 1) == 1) return static_cast<std::int64_t>(t.row_bytes);
    return by_address(&deliver_numbered<Group>)(g, c, t, number, to);
}

// Whole group. Delivers rows [begin, end) of the list. Returns how many could not be had.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t deliver_rows(const Group& g, const cache_view& c,
                                                       const listed_table_rows& rows,
                                                       std::uint64_t begin, std::uint64_t end) {
    std::uint64_t failed = 0;
    for (;;) {
        begin = copy_present_rows(g, c, rows, begin, end);
        if (begin >= end) return failed;
        const std::int64_t done = by_address(&deliver_listed<Group>)(g, c, rows, begin, end);
        if (done < 0) ++failed;
        begin += done < 0 ? 1 : static_cast<std::uint64_t>(done);
    }
}

// Whole group. The same, from the parts of a call.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t deliver_list(const Group& g, const cache_view& c,
                                                       const table_view& t, const number_list& list,
                                                       std::byte* out,
                                                       std::uint64_t out_stride_bytes,
                                                       std::uint64_t begin, std::uint64_t end,
                                                       std::uint64_t count) {
    const listed_table_rows rows{c,
                                 t,
                                 list,
                                 out,
                                 out_stride_bytes,
                                 count,
                                 t.run_count == 1 ? window_behind_hits(c, t.only.file) : 0};
    return deliver_rows(g, c, rows, begin, end);
}

// Whole group. Brings the pages of one row into the cache. A row that cannot be had is noted.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void bring_in_alone(const Group& g, const cache_view& c,
                                                const table_view& t, const number_list& list,
                                                std::uint64_t i) {
    const row_source source = source_of(t, list, i);
    std::int64_t done = source.is == row_source::outside ? -ERANGE : 0;
    if (source.is == row_source::in_file && is_row_gone(g, c, t, source)) done = -ESTALE;
    // The next call tells why one came to an end within the row.
    for (std::uint64_t at = source.at;
         source.is == row_source::in_file && done >= 0 && at < source.at + t.row_bytes;
         at += static_cast<std::uint64_t>(done))
        done = bring_in(g, c, source.file->slot, at, source.at + t.row_bytes);
    if (done < 0 && g.is_leader()) note_listed_row(t, done, list, i);
}

// Whole group. Lists the pages of rows from `begin` on that are absent, as many as are loaded
// together, of one file. Returns the first row whose pages are not in the list.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t list_absent(const Group& g, const cache_view& c,
                                                      const file_handle& f, const table_view& t,
                                                      const number_list& list, std::uint64_t begin,
                                                      std::uint64_t end, page_list& absent) {
    for (std::uint64_t i = begin; i < end; ++i) {
        const row_source source = source_of(t, list, i);
        if (source.is == row_source::padding) continue;
        if (!is_row_in(f, t.row_bytes, source)) return i;
        const std::uint64_t first = source.at >> c.page_shift,
                            last = (source.at + t.row_bytes - 1) >> c.page_shift;
        if (last - first >= max_pending_loads - absent.count) return i;
        for (std::uint64_t page = first; page <= last; ++page)
            if (!absent.has(page) && !is_under_way(g, c, f, page))
                absent.page[absent.count++] = page;
    }
    return end;
}

// Whole group. Brings the pages of rows [begin, end) of the list into the cache, many at a time.
// Rows that cannot be had are noted.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void bring_in_list(const Group& g, const cache_view& c,
                                               const table_view& t, const number_list& list,
                                               std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t i = begin; i < end;) {
        const row_source source = source_of(t, list, i);
        std::uint64_t next = i;
        bool good = source.is == row_source::in_file;
        // Each round loads at least one page of the list, or finds all of them under way.
        for (std::uint32_t round = 0; good && round <= max_pending_loads; ++round) {
            const file_handle f = handle_of(g, c, source.file->slot);
            page_list absent;
            next = list_absent(g, c, f, t, list, i, end, absent);
            if (absent.count == 0) break;
            wait_deadline deadline(g, c.frame_wait_ns);
            good = load_listed(
                       g, c, f, absent.count, [&](std::uint64_t k) { return absent.page[k]; },
                       deadline,
                       [&](std::uint64_t page, const std::byte*) {
                           // No group has read it yet: with its use bit clear the clock might
                           // evict it unread.
                           if (g.is_leader()) touch(&c.words[find_word(c, f, page)], 0);
                       }) >= 0;
        }
        if (!good || next == i) {
            bring_in_alone(g, c, t, list, i);
            next = i + 1;
        }
        i = next;
    }
}

}  // namespace penstock::engine
