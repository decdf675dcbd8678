// The close's share: a group that closes a file which others still have open writes back a part of
// its dirty pages, so that the last close finds little. Alone, the group of the last close would
// write back all that a kernel wrote, and one group brings a fraction of what the disk takes
// (docs/decisions/speed.md).
//
//   dirty pages <= later closes * close_leaves_pages   nothing: the later closes can do the rest
//   more, and a seat is free                           pieces of the file, until twice this close's
//                                                      part is sent
//   more, and no seat is free                          waits for either: so a kernel cannot make
//                                                      pages dirty faster than they are written
//
// So programs that keep a file open while others open and close it, and change the same few pages
// again and again, write them once.
//
// A seat is a place among the groups that write behind (write_behind_writers); there are
// flushing_groups of them, for more groups at a time were slower. A block has one for all its
// warps. Pieces are given out by a count of the file (next_piece), so that groups that write at a
// time write neighbours.
//
// Invariants
//  (1) The group keeps its reference until all its write-backs have ended. So the file keeps its
//      slot, and a close that finds itself the last comes after the shares of all others.
//  (2) A share changes nothing that the last close decides by: each page is written back with all
//      the steps of engine/write_back.hpp, and counts as dirty until its answer came. So a share
//      may leave out any page: one that is pinned or locked, or has no ring slot.
//  (3) A group with a seat waits for answers and ring slots only, never for a lock or another
//      group's seat. A group that waits for a seat holds nothing but its reference.
//
// Errors become errors of the file, as with any write-back behind: the next close of a writer tells
// them, often this one. While the file has an error that no caller was told of, no share begins.
//
// Tests: tests/explore/close_share_test.cpp, tests/unit/close_share_test.cpp,
// tests/fault/close_share_test.cpp, canary share_counted_early.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/file_word.hpp"
#include "penstock/engine/flush.hpp"

namespace penstock::engine {

// Leader only. May pages be written back before the last close?
PENSTOCK_HD inline bool may_write_share(const cache_view& c, std::uint32_t slot) {
    return dirty_pages_of(c, slot) != 0 && !has_write_error(c, slot) && stop_code(c) == 0;
}

// Leader only, with a reference. Are more pages of the file dirty than its later closes should
// find? A hint: all it decides is whether pages are written back now or later.
PENSTOCK_HD inline bool is_share_due(const cache_view& c, std::uint32_t slot) {
    const std::uint64_t later = references_of(load_file_relaxed(&c.file_words[slot])) - 1;
    return c.close_leaves_pages != 0 && later != 0 &&
           dirty_pages_of(c, slot) > later * c.close_leaves_pages && may_write_share(c, slot);
}

// Leader only. With so many references or more no share is due, as far as the dirty pages of this
// moment say, and a close is not the last.
PENSTOCK_HD inline std::uint64_t references_without_share(const cache_view& c, std::uint32_t slot) {
    return 2 + (c.close_leaves_pages == 0 ? 0 : dirty_pages_of(c, slot) / c.close_leaves_pages);
}

enum class seat_outcome : std::uint64_t { not_due, taken, none_in_time };

// Leader only, holding nothing but its reference. Waits for a seat as long as the caller's share is
// due.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE seat_outcome await_seat(const Group& g, const cache_view& c,
                                                      std::uint32_t slot) {
    wait_deadline waiting(g, c.request_wait_ns);
    for (std::uint32_t round = 0; is_share_due(c, slot); ++round) {
        if (join_write_behind_writers(c, flushing_groups(c))) return seat_outcome::taken;
        if (round % 16 == 15 && waiting.check(g, c) != 0) return seat_outcome::none_in_time;
        g.pause(round);
    }
    return seat_outcome::not_due;
}

// Whole group. Puts the pages of the run that are dirty and held by no group into the queue.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void queue_free_pages(const Group& g, const cache_view& c,
                                                    const word_run& run, write_queue& queue) {
    const auto is_free = [&](std::uint64_t i) {
        const page_word seen = load_relaxed(&c.words[run.index + i]);
        return is_valid(seen) && is_dirty(seen) && pins_of(seen) == 0;
    };
    for (std::uint64_t i = 0; run.index != no_words && i < run.pages; i += g.size()) {
        const bool passes = i + g.rank() >= run.pages || !is_free(i + g.rank());
        if (g.all(passes)) continue;
        for (std::uint64_t k = i; k < i + g.size() && k < run.pages; ++k) {
            if (!g.broadcast(g.is_leader() && is_free(k))) continue;
            queue.make_room(g, c);
            pending_write w{};
            if (hold_together(g, c, run.index + k, w) == 1 && !queue.write_held(g, c, w))
                queue.finish_all(g, c);  // there was no slot for the page, so it is left
        }
    }
}

// Leader only. The next piece of the file; at most to the end of a leaf of its table.
PENSTOCK_HD inline word_run next_piece_of(const cache_view& c, std::uint32_t slot) {
    const std::uint64_t pages = pages_of(c, size_of(c, slot)), most = flushed_piece_pages(c);
    if (pages == 0) return {no_words, 0};
    const std::uint64_t first = take_piece(c, slot) % ((pages + most - 1) / most) * most;
    word_run run = words_from(c, slot, first);
    const std::uint64_t rest = pages - first < most ? pages - first : most;
    if (run.pages > rest) run.pages = rest;
    return run;
}

// Whole group with a seat, or a part of it. Writes back pieces of the file until it has sent enough
// pages or has looked at enough. It does not ask again whether its share is due: the groups with
// seats together would end theirs after a few pages each, and wait for answers most of the time.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void write_pieces(const Group& g, const cache_view& c,
                                                std::uint32_t slot, std::uint64_t most_sent,
                                                std::uint64_t most_looked) {
    write_queue queue;
    for (std::uint64_t looked = 0; looked < most_looked && queue.sent() < most_sent;
         looked += flushed_piece_pages(c)) {
        word_run run{no_words, 0};
        if (g.is_leader() && may_write_share(c, slot)) run = next_piece_of(c, slot);
        run = {g.broadcast(run.index), g.broadcast(run.pages)};
        if (run.pages == 0) break;
        queue_free_pages(g, c, run, queue);
    }
    queue.finish_all(g, c);
    if (g.is_leader()) count(g, c, count_written_behind, queue.sent());
}

// What a part of a group does of the group's share.
struct part_of_share {
    const cache_view* cache;
    std::uint32_t file_slot;
    std::uint64_t most_sent, most_looked;

    template <typename Group>
    PENSTOCK_HD std::int64_t operator()(const Group& part, std::uint32_t,
                                        std::uint32_t parts) const {
        write_pieces(part, *cache, file_slot, (most_sent + parts - 1) / parts,
                     (most_looked + parts - 1) / parts);
        return 0;
    }
};

// Whole group, with a reference to a written file that it is about to close. Writes back this
// close's share if that is due. True, in all threads: this close has no further share. False: its
// share is not due any more, but may become due again.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool write_share(const Group g, const cache_view& c,
                                               std::uint32_t slot) {
    // Few enough that a close does not look through the words of a huge file for its share.
    constexpr std::uint64_t most_looked_pages = 16384;
    std::uint64_t most_sent = 0, most_looked = 0;
    auto outcome = seat_outcome::not_due;
    if (g.is_leader()) outcome = await_seat(g, c, slot);
    if (g.is_leader() && outcome == seat_outcome::taken) {
        const std::uint64_t closes = references_of(load_file_relaxed(&c.file_words[slot])),
                            pages = pages_of(c, size_of(c, slot));
        most_sent = 1 + 2 * dirty_pages_of(c, slot) / (closes != 0 ? closes : 1);
        most_looked = pages < most_looked_pages ? pages : most_looked_pages;
    }
    outcome = g.broadcast(outcome);
    if (outcome != seat_outcome::taken) return outcome == seat_outcome::none_in_time;
    most_sent = g.broadcast(most_sent);
    most_looked = g.broadcast(most_looked);
    in_flushing_parts(g, c, part_of_share{&c, slot, most_sent, most_looked});
    if (g.is_leader()) count_write_behind_writers(c, ~std::uint32_t{0});
    return true;
}

}  // namespace penstock::engine
