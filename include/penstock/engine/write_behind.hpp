// Write-behind: writes pages back before the cache is full of dirty pages. When much of a file is
// dirty, its writer looks write_behind_pages behind the page that it has just written. If a part
// begins there, the writer writes that part back; so each part has one group. Then a kernel that
// computes between its writes does not leave all write-backs to the last close, and the frames that
// other groups need are clean already. A page that was written lately is likely to be written
// again; a page far behind is less likely.
//
// A part is the aligned run of pages that goes to one service thread (engine/victim.hpp). Its group
// has many pages under way. A few groups at a time write behind, and all other groups write on. All
// of this is optional: pages that other groups hold are passed over, a part that got no group is
// left, and pages that stay dirty are written later. Errors become errors of the file, as with any
// write-back. While groups write back victims, no group writes behind: victims go in the file's
// order, and with other pages among them calls of the operating system were half as long.
//
// Tests: tests/explore/write_test.cpp, tests/unit/write_behind_test.cpp.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/victim.hpp"

namespace penstock::engine {

// As many groups as flush a file from the host for small pages.
inline constexpr std::uint32_t most_early_groups = 32;

// Leader only. The part that begins write_behind_pages behind `page`; no pages if no part begins
// there, or the group cannot write it now.
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

// Whole group, which holds nothing and has made `page` of the file dirty. Writes behind.
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
            queue.finish_all(g, c);  // there was no slot for the page, so it is left
    }
    queue.finish_all(g, c);
    if (!g.is_leader()) return;
    count(g, c, count_written_behind, queue.sent());
    count_write_behind_writers(c, ~std::uint32_t{0});
}

}  // namespace penstock::engine
