// Rows of which some page is missing.
//
// The group takes a window of parts (a part is the piece of one row in one page). It delivers the
// parts that are there and loads the others: each page once for all its parts, and up to
// max_pending_loads pages together. Each round delivers or fails at least the first part that is
// open, so the loop ends as every read does.
//
// Rows are named as in engine/row_batch.hpp.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/row_batch.hpp"

namespace penstock::engine {

// How far a delivery has come: rows before `row` are done, and the first in_row bytes of `row`.
struct row_place {
    std::uint64_t row, in_row;
};

inline constexpr std::uint32_t window_parts = 16;

// Does the row lie in the file, as long as that is now?
PENSTOCK_HD PENSTOCK_INLINE bool is_row_in(const file_handle& f, std::uint64_t row_bytes,
                                           const row_source& source) {
    return source.is == row_source::in_file && source.file->slot == f.slot &&
           source.at <= f.size_bytes && row_bytes <= f.size_bytes - source.at;
}

// Whole group. Calls visit(k, row, part, to) for up to window_parts parts from `place` on, and
// stops before row `end` and before a row that does not lie in the file. Returns how many parts it
// visited; `place` is then behind them.
template <typename Rows, typename Visit>
PENSTOCK_HD std::uint32_t walk_parts(const cache_view& c, const file_handle& f, const Rows& rows,
                                     std::uint64_t end, row_place& place, const Visit& visit) {
    std::uint32_t k = 0;
    while (k < window_parts && place.row < end) {
        const row_source source = rows.source(place.row);
        if (!is_row_in(f, rows.row_bytes(), source)) break;
        const page_part part =
            part_at(c, source.at + place.in_row, rows.row_bytes() - place.in_row);
        visit(k++, place.row, part, rows.place(place.row) + place.in_row);
        place.in_row += part.bytes;
        if (place.in_row == rows.row_bytes()) place = {place.row + 1, 0};
    }
    return k;
}

// A list of pages that are loaded together; equal in all threads of the group.
struct page_list {
    std::uint64_t page[max_pending_loads];
    std::uint32_t count = 0;

    PENSTOCK_HD bool has(std::uint64_t wanted) const {
        for (std::uint32_t i = 0; i < count; ++i)
            if (page[i] == wanted) return true;
        return false;
    }
};

// Whole group. Loads the pages of the list and calls deliver(page, frame) for those that it got, at
// least for the first. Returns 0, or the negative errno of the first page.
template <typename Group, typename Deliver>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t load_and_deliver(const Group& g, const cache_view& c,
                                                          const file_handle& f,
                                                          const page_list& missing,
                                                          const Deliver& deliver) {
    wait_deadline deadline(g, c.frame_wait_ns);
    const std::int64_t loaded = load_listed(
        g, c, f, missing.count, [&](std::uint64_t i) { return missing.page[i]; }, deadline,
        deliver);
    if (loaded != 0) return loaded < 0 ? loaded : 0;
    pinned_page page{};  // another group has the first one
    const std::int64_t code = pin_page(g, c, f, missing.page[0], deadline, page);
    if (code != 0) return code;
    deliver(missing.page[0], c.frame_address(page.frame));
    g.sync();  // every thread has copied before the leader unpins
    if (g.is_leader()) unpin(&c.words[page.word_index]);
    return 0;
}

// Whole group. Delivers the window of parts at `place`, before row `end`, and moves `place` behind
// it. Returns 0, or a negative errno, with the row that has it as `failed`; then some of the parts
// may be delivered. -ERANGE: the row at `place` does not lie in the file.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t deliver_window(const Group& g, const cache_view& c,
                                                          const file_handle& f, const Rows& rows,
                                                          std::uint64_t end, row_place& place,
                                                          std::uint64_t& failed) {
    std::uint32_t open = (1u << window_parts) - 1;  // a bit for each part that is not delivered
    for (;;) {
        page_list missing;
        failed = place.row;
        row_place until = place;
        const std::uint32_t parts = walk_parts(
            c, f, rows, end, until,
            [&](std::uint32_t k, std::uint64_t row, const page_part& part, std::byte* to) {
                if ((open >> k & 1) == 0 || missing.has(part.page)) return;
                if (try_read_part(g, c, f, part, to) ||
                    read_through(g, c, f.slot, to, part.bytes,
                                 (part.page << c.page_shift) + part.in_page) == part.bytes) {
                    open &= ~(1u << k);
                } else if (missing.count < max_pending_loads) {
                    if (missing.count == 0) failed = row;
                    missing.page[missing.count++] = part.page;
                }
            });
        if (parts == 0) return -ERANGE;
        if (missing.count == 0) {
            place = until;
            return 0;
        }
        const std::int64_t code =
            load_and_deliver(g, c, f, missing, [&](std::uint64_t page, const std::byte* frame) {
                row_place again = place;
                walk_parts(
                    c, f, rows, end, again,
                    [&](std::uint32_t k, std::uint64_t, const page_part& part, std::byte* to) {
                        if ((open >> k & 1) == 0 || part.page != page) return;
                        g.copy_out(to, frame + part.in_page, part.bytes);
                        open &= ~(1u << k);
                    });
            });
        if (code != 0) return code;
    }
}

// Whole group, for a row `first` of which some page was not in the cache a moment ago, or that does
// not lie in the file. Delivers this row and some that follow. Returns how many, or a negative
// errno, with the row that has it as `failed`.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t deliver_missing(const Group& g, const cache_view& c,
                                                           const file_handle& f, const Rows& rows,
                                                           std::uint64_t first, std::uint64_t end,
                                                           std::uint64_t& failed) {
    row_place place{first, 0};
    do {
        if (const std::int64_t code = deliver_window(g, c, f, rows, end, place, failed); code != 0)
            return code;
        end = place.row + 1;  // only the rest of a row that the window cut in two
    } while (place.in_row != 0);
    return static_cast<std::int64_t>(place.row - first);
}

}  // namespace penstock::engine
