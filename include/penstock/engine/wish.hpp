// Wishes: rows that will be wanted soon. Groups tell the host which of their pages are nowhere yet,
// and wait for nothing (docs/protocol/wishes.md).
//
// Where there is a host tier, a wish is a fill (engine/fill.hpp). Else, and for a page that has no
// page word yet, it is an entry of a list: the group writes up to max_wished_runs entries to the
// staging area of a ring slot, posts the request, and gives the slot up at once, as after a fill.
// The service thread copies the list, answers, and asks the operating system to read the bytes into
// its page cache (src/service/wishes.hpp), from where later requests have them.
//
// Invariants
//  (1) A wish is a hint: no result of a read depends on it. So a full ring, a tier without a free
//      frame, or a host without room drops it.
//  (2) A group holds the slot of a list only while it writes the list. The service thread takes
//      tickets in order, so other groups of the ring wait for that.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/table_rows.hpp"

namespace penstock::engine {

// Pages of a file that follow each other, as an entry of a list.
struct wished_run {
    std::uint32_t file_slot, generation;
    std::uint64_t run;  // first page in bits 63..16, how many in 15..0
};
static_assert(sizeof(wished_run) == 16);

inline constexpr std::uint32_t max_wished_runs = 256;  // the least staging area has room for them
inline constexpr std::uint32_t wished_pages_bits = 16;

constexpr PENSTOCK_HD std::uint64_t make_run(std::uint64_t first_page, std::uint64_t pages) {
    constexpr std::uint64_t most = (std::uint64_t{1} << wished_pages_bits) - 1;
    return first_page << wished_pages_bits | (pages < most ? pages : most);
}
constexpr PENSTOCK_HD std::uint64_t first_page_of(const wished_run& r) {
    return r.run >> wished_pages_bits;
}
constexpr PENSTOCK_HD std::uint64_t pages_of(const wished_run& r) {
    return r.run & ((std::uint64_t{1} << wished_pages_bits) - 1);
}

// One thread. Is the page in the cache, in the tier or in a window, or on its way to one of them?
// Or does a neighbour have it?
PENSTOCK_HD PENSTOCK_INLINE bool is_near(const cache_view& c, const file_handle& f,
                                         std::uint64_t page) {
    const bool is_here = c.tier.words != nullptr
                             ? is_at_hand(c, f, page)
                             : is_in_cache(c, f, page) ||
                                   is_in_window(c, f.slot, f.generation, page << c.page_shift);
    return is_here || is_next_door(c, f, page);
}

// The pages of a row.
struct page_span {
    std::uint64_t first, end;
};
PENSTOCK_HD PENSTOCK_INLINE page_span span_of(const cache_view& c, const table_view& t,
                                              const row_source& row) {
    return {row.at >> c.page_shift, ((row.at + t.row_bytes - 1) >> c.page_shift) + 1};
}

// One thread. Is some page of row `i` of the list nowhere near? Not so for a number of no row, and
// a row that was cut off.
PENSTOCK_HD PENSTOCK_NOINLINE inline bool is_row_far(const cache_view& c, const table_view& t,
                                                     const number_list& list, std::uint64_t i) {
    const row_source row = source_of(t, list, i);
    if (row.is != row_source::in_file || is_cut_off(c, row.file->slot, row.at, t.row_bytes))
        return false;
    const file_handle f = handle_of(c, row.file->slot);
    const page_span pages = span_of(c, t, row);
    for (std::uint64_t page = pages.first; page < pages.end; ++page)
        if (!is_near(c, f, page)) return true;
    return false;
}

// Leader only. Asks for fills of the pages [first, end) of a file, up to `room` of them, as long as
// ring and tier have room. Returns true if no fill can serve them: the file is written, or the
// first page that is nowhere has no page word.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool fill_pages(const Group& g, const cache_view& c,
                                              std::uint32_t slot, page_span pages,
                                              std::uint64_t& room) {
    if (is_granted(c, slot))
        return true;  // no group uses the tier's pages of a file that is written
    const file_handle f = handle_of(c, slot);
    while (pages.first < pages.end && room > 0) {
        if (find_word(c, f, pages.first) == no_word) return true;
        if (is_near(c, f, pages.first)) {
            ++pages.first;
            continue;
        }
        const std::uint64_t left = pages.end - pages.first,
                            asked =
                                ask_for_fill(g, c, slot, pages.first, left < room ? left : room);
        // Another group or a neighbour may have had the page first. Else there is no room now.
        if (asked == 0 && !is_near(c, f, pages.first)) return false;
        pages.first += asked;
        room -= asked;
    }
    return false;
}

// Leader only, where there is a tier. Asks for fills for the rows begin + k whose bit k is set.
// Returns the bits of those rows that no fill can serve.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint32_t fill_rows(const Group& g, const cache_view& c,
                                                      const table_view& t, const number_list& list,
                                                      std::uint64_t begin, std::uint32_t far,
                                                      std::uint64_t& room) {
    std::uint32_t left = 0;
    for (std::uint32_t k = 0; k < 32; ++k) {
        if ((far >> k & 1) == 0) continue;
        const row_source row = source_of(t, list, begin + k);
        if (fill_pages(g, c, row.file->slot, span_of(c, t, row), room)) left |= 1u << k;
    }
    return left;
}

// Whole group. Posts a list of the rows begin + k whose bit k is set, if the ring has a slot now.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void post_wishes(const Group& g, const cache_view& c,
                                               const table_view& t, const number_list& list,
                                               std::uint64_t begin, std::uint32_t far) {
    ring_ticket at{};
    const bool has_slot = g.is_leader() && claim_slot(g, c, false, at) == 0;
    if (!g.broadcast(has_slot)) return;
    at.ring = g.broadcast(at.ring);
    at.ticket = g.broadcast(at.ticket);
    const ring_view& r = c.rings[at.ring];
    auto* const entries =
        reinterpret_cast<wished_run*>(r.staging + r.staging_stride * slot_of(r, at.ticket));
    for (std::uint32_t k = g.rank(); k < 32; k += g.size()) {
        if ((far >> k & 1) == 0) continue;
        const row_source row = source_of(t, list, begin + k);
        const page_span pages = span_of(c, t, row);
        entries[votes_in(far & ((1u << k) - 1))] = {row.file->slot, row.file->generation,
                                                    make_run(pages.first, pages.end - pages.first)};
    }
    g.sync();  // every thread's entries are written before the leader posts
    if (!g.is_leader()) return;
    post(g, c, at, wish_request{votes_in(far)}.packed());
    orphan_slot(c, at);  // no group waits; the slot is free once the host has copied the list
}

// Whole group, of at most 32 threads. Wishes for rows [begin, end) of a list of `count`. Numbers of
// no row are passed over, and nothing is noted.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void wish_list(const Group& g, const cache_view& c, const table_view& t,
                                           const number_list& list, std::uint64_t begin,
                                           std::uint64_t end, std::uint64_t count) {
    // All groups of a launch together take at most half of the tier.
    std::uint64_t room = c.tier.frame_count / 2 / (count / (end - begin)) + 1;
    for (; begin < end; begin += 32) {
        if (shared_stop_code(g, c) != 0) return;
        const std::uint32_t rows = end - begin < 32 ? static_cast<std::uint32_t>(end - begin) : 32;
        std::uint32_t far = 0;
        for (std::uint32_t first = 0; first < rows; first += g.size()) {
            const std::uint32_t k = first + g.rank();
            far |= g.votes(k < rows && is_row_far(c, t, list, begin + k)) << first;
        }
        if (far != 0 && c.tier.words != nullptr) {
            std::uint32_t left = 0;
            if (g.is_leader()) left = fill_rows(g, c, t, list, begin, far, room);
            far = static_cast<std::uint32_t>(g.broadcast(left));
        }
        if (far != 0) post_wishes(g, c, t, list, begin, far);
    }
}

}  // namespace penstock::engine
