// Before the cache is full of dirty pages: when much of a file is dirty, a group that writes it
// writes back the part that begins that far behind the page which it has just written, if one
// begins there: so each part has one group. A kernel that computes between its writes does not
// leave all of them to the last close then, and the frames that others need are clean already. A
// page that was written lately may well be written again, one far behind less likely so.
//
// A part is the aligned run of pages that goes to one service thread (engine/victim.hpp). Its group
// has many pages under way; a few groups at a time do so, and all others write on. It is a hint
// from beginning to end: pages in other hands are passed over, a part for which there was no group
// is left, and what stays dirty goes later. Errors are the file's, as of any write-back. While
// groups write pages back for their frames no group writes behind: those go in the file's order,
// and with others among them calls of the operating system were half as long.
//
// Tests: tests/explore/write_test.cpp, tests/unit/write_behind_test.cpp.
#pragma once

#include <cstdint>

#include "penstock/engine/victim.hpp"

namespace penstock::engine {

// As many as flush a file from the host for small pages.
inline constexpr std::uint32_t most_early_groups = 32;

// Leader only. The part that begins there behind `page`; no pages if none does, or it cannot be
// now.
PENSTOCK_HD inline word_run part_behind(const cache_view& c, std::uint32_t slot,
                                        std::uint64_t page) {
    const std::uint64_t most = std::uint64_t{1} << c.write_behind_shift,
                        first = page - c.write_behind_pages;
    if (page < c.write_behind_pages || (first & (most - 1)) != 0 || victim_writers(c) != 0 ||
        write_behind_writers(c) >= most_early_groups)
        return {no_words, 0};
    const word_run run = words_from(c, slot, first);
    return {run.index, run.index == no_words ? 0 : run.pages < most ? run.pages : most};
}

// Whole group, which holds nothing and has made `page` of the file dirty.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void write_behind(const Group& g, const cache_view& c,
                                                std::uint32_t slot, std::uint64_t page) {
    word_run run{};
    if (g.is_leader()) {
        run = part_behind(c, slot, page);
        if (run.pages != 0) count_write_behind_writers(c, 1);
    }
    run = {g.broadcast(run.index), g.broadcast(run.pages)};
    if (run.pages == 0) return;
    write_queue queue;
    for (std::uint64_t i = 0; i < run.pages; ++i) {
        queue.make_room(g, c);
        pending_write w{};
        if (hold_together(g, c, run.index + i, w) == 1 && !queue.write_held(g, c, w))
            queue.finish_all(g, c);  // no slot for it: it is left
    }
    queue.finish_all(g, c);
    if (!g.is_leader()) return;
    count(g, c, count_written_behind, queue.sent());
    count_write_behind_writers(c, ~std::uint32_t{0});
}

}  // namespace penstock::engine
