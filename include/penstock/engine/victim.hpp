// Write-back of victims: when a group needs a frame and the clock met only dirty pages, a dirty
// page is written back together with its neighbours in the file, for the host writes many
// neighbours in little more time than one page.
//
// Many groups come here at a time, often all groups of the kernel. One group holds the neighbours
// of a dirty page (pin and frame lock) and offers them. Every other group takes over one page,
// writes it back and gets its frame. So neighbours reach the host at about the same time, copied by
// as many groups as want frames. No group uses a frame that another group has cleaned: when groups
// did so, some ran far ahead, and most neighbours of a dirty page were not there
// (docs/guide/writing.md).
//
//   lock word of a frame   free -> held -> offered   the group that offers, of pages that are dirty
//                                                    and held by no group
//                          offered -> held           the group that takes it over, by
//                                                    compare-and-swap; then as any write-back
//   offered_run            where they are; a hint    shown by the group that offers, counted up by
//                                                    a group that wants one
//   offering lock          0 -> 1 -> 0               held while a group holds neighbours, never
//                                                    while it waits
//
// Every offered page is taken over before the group that offered it leaves: that group takes the
// remaining pages itself. At the end it looks for pages that the hint gave out to a group that did
// not come. Tests: tests/explore/write_test.cpp, canary page_taken_over_by_two.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/flush.hpp"

namespace penstock::engine {

// Any one thread. Takes over the page of this word if it is offered. Otherwise it stores nothing,
// even if the word belongs to another page by now.
PENSTOCK_HD inline bool take_over_page(const cache_view& c, std::uint64_t word_index,
                                       pending_write& w) {
    const page_word seen = load_relaxed(&c.words[word_index]);
    if (!is_valid(seen) || frame_of(seen) >= c.frame_count || !take_over(c, frame_of(seen)))
        return false;
    const frame_word owner = look_at_frame(c, frame_of(seen));  // pinned, so it stays
    w = {owner_word_index(owner), frame_of(seen), owner_file_slot(owner)};
    return true;
}

// Leader only. Takes over one of the offered pages.
PENSTOCK_HD inline bool take_next_offered(const cache_view& c, pending_write& w) {
    for (std::uint64_t word_index = 0; next_offered(c, word_index);)
        if (take_over_page(c, word_index, w)) return true;
    return false;
}

// Leader only. Returns the frame of a dirty page that the hand of some shard meets, and evicts no
// clean page on the way. no_frame: it met no dirty page.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::uint32_t find_dirty_frame(const cache_view& c,
                                                                    std::uint64_t start) {
    const std::uint32_t per_shard = c.frame_count / c.clock_shards;
    const std::uint64_t all = 2 * std::uint64_t{c.frame_count};
    for (std::uint64_t step = 0; step < all && step < patient_steps; ++step) {
        const std::uint32_t shard =
            static_cast<std::uint32_t>(start + step / (2 * std::uint64_t{per_shard})) &
            (c.clock_shards - 1);
        std::uint32_t* const hand = &c.clock_hands[std::size_t{shard} * clock_hand_stride];
        const std::uint32_t frame =
            shard * per_shard + fetch_add_relaxed(hand, std::uint32_t{1}) % per_shard;
        const frame_word owner = look_at_frame(c, frame);
        if ((owner & frame_state_mask) != frame_owned) continue;
        page_word* const word = &c.words[owner_word_index(owner)];
        const page_word seen = load_relaxed(word);
        if (!is_valid(seen) || frame_of(seen) != frame || pins_of(seen) != 0 || !is_dirty(seen))
            continue;
        if ((seen & use_bit) == 0) return frame;
        age(word);
    }
    if (all <= patient_steps) note_writes(c, false);  // there is nothing left that could fail
    return no_frame;
}

// Leader only. Returns the frame of a dirty page; no_frame if it met none, but then the deadline
// may offer a free frame.
template <typename Group>
PENSTOCK_HD inline std::uint32_t find_victim(const Group& g, const cache_view& c,
                                             wait_deadline& deadline) {
    if (writes_fail(c) && writes_first(c, deadline)) return find_dirty_frame(c, mix64(g.now_ns()));
    const std::uint64_t all = 2 * std::uint64_t{c.frame_count};
    std::uint32_t frame = no_frame;
    sweep_notes notes;
    notes.enough_dirty_pages = 1;
    keep_nothing nothing;
    if (!sweep_clock(g, c, c, mix64(g.now_ns()), all < 1024 ? all : 1024, frame, notes, nothing))
        return notes.dirty_frame;
    set_frame_word(c, frame, frame_free);
    deadline.offered_frame = frame;
    return no_frame;
}

// Leader only. Returns 1: `w` is held; `offers`: this group alone has to offer its neighbours. 0:
// no page now, search again; -EAGAIN: the same, and a group is writing. Or the code that ended the
// wait for another group that offers.
template <typename Group>
PENSTOCK_HD inline std::int64_t find_write(const Group& g, const cache_view& c, std::uint32_t frame,
                                           wait_deadline& deadline, pending_write& w,
                                           bool& offers) {
    for (std::uint32_t round = 0;; ++round) {
        if (take_next_offered(c, w)) return 1;
        if (begin_offering(c)) {
            if (all_given_out(c)) break;
            end_offering(c);  // another group offered in between, and most of its pages would be
                              // found by no group
            continue;
        }
        g.pause(round);
        if (const std::int64_t late = deadline.check(g, c); late != 0)
            return late == -ETIME ? -EAGAIN : late;
    }
    if (frame == no_frame) frame = find_victim(g, c, deadline);
    const std::int64_t code =
        frame == no_frame ? 0 : hold_dirty(c, owner_word_index(look_at_frame(c, frame)), w);
    offers = code == 1;
    if (!offers) end_offering(c);
    return code;
}

// Leader only; `w` is held. The run of page words around it.
PENSTOCK_HD inline word_run run_around(const cache_view& c, const pending_write& w) {
    const std::uint64_t most = std::uint64_t{1} << c.write_behind_shift,
                        page = page_in_frame(c, w.frame), first = page & ~(most - 1);
    const word_run run = words_from(c, w.file_slot, first);
    const bool together = run.index != no_words && page - first < run.pages &&
                          run.index + (page - first) == w.word_index;
    return together ? word_run{run.index, run.pages < most ? run.pages : most}
                    : word_run{w.word_index, 1};
}

// Whole group, which has begun to offer. Offers the pages of the run that are dirty and held by no
// group. Waits for nothing.
template <typename Group>
PENSTOCK_HD inline void offer_pages(const Group& g, const cache_view& c, const word_run& run) {
    for (std::uint64_t i = g.rank(); i < run.pages; i += g.size()) {
        const page_word seen = load_relaxed(&c.words[run.index + i]);
        pending_write w{};
        if (is_valid(seen) && is_dirty(seen) && pins_of(seen) == 0 &&
            hold_dirty(c, run.index + i, w) == 1)
            offer_page(c, w.frame);
    }
    g.sync();
    if (!g.is_leader()) return;
    show_run(c, run.index, run.pages);
    end_offering(c);
}

// With this many groups writing victims, a group sends a page as soon as it is copied: other groups
// send its neighbours, and these requests stand behind it in the ring.
inline constexpr std::uint32_t many_victim_writers = 8;

// Whole group, which has begun to offer and holds `w`. Returns 0 if a page was written back; or the
// reason why none was.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_offering(const Group& g, const cache_view& c,
                                                          pending_write w) {
    word_run run{};
    if (g.is_leader()) run = run_around(c, w);
    run = {g.broadcast(run.index), g.broadcast(run.pages)};
    offer_pages(g, c, run);
    write_queue queue;
    for (bool more = queue.write_held(g, c, w); more;) {
        bool found = false, at_once = false;
        if (g.is_leader()) {
            at_once = victim_writers(c) >= many_victim_writers;
            found = take_next_offered(c, w);
        }
        const std::uint64_t told = g.broadcast((found ? 1u : 0u) | (at_once ? 2u : 0u));
        if ((told & 2) != 0) queue.post_all(g, c);
        if ((told & 1) == 0) break;
        share_write(g, w);
        more = queue.write_held(g, c, w);
    }
    queue.finish_all(g, c);
    for (std::uint64_t i = g.rank(); i < run.pages; i += g.size())
        if (pending_write left{}; take_over_page(c, run.index + i, left)) let_go(c, left);
    g.sync();
    if (g.is_leader()) count(g, c, count_dirty_victims, queue.sent());
    return queue.written() != 0 ? 0 : queue.error();
}

// Whole group, which holds `w` and nothing else. Writes it back. Returns 0, or the error.
template <typename Group>
PENSTOCK_HD inline std::int64_t write_alone(const Group& g, const cache_view& c,
                                            const pending_write& w) {
    const std::int64_t code = begin_write(g, c, true, w);
    if (code != 1) return code;
    if (g.is_leader()) {
        post_write(g, c, w.frame);
        count(g, c, count_dirty_victims);
    }
    return finish_write(g, c, w.frame);
}

// Leader only. The page in the frame was written back: frees the frame for this group, unless
// another group has the page again or takes the frame first.
template <typename Group>
PENSTOCK_HD inline void free_written(const Group& g, const cache_view& c, std::uint32_t frame,
                                     wait_deadline& deadline) {
    keep_nothing nothing;
    if (try_take_frame(g, c, c, frame, nothing) != frame_step::taken) return;
    set_frame_word(c, frame, frame_free);
    deadline.offered_frame = frame;
}

// Leader only, after a wait in which no page could be written back. Pages that other groups held
// all the while were not tried: then the error of the file that the caller writes says why.
PENSTOCK_HD inline std::int64_t why_no_frame(const cache_view& c, const wait_deadline& deadline) {
    if (deadline.write_error != 0) return deadline.write_error;
    const std::int64_t error = deadline.makes_dirty ? write_error_of(c, deadline.file_slot) : 0;
    return error != 0 ? error : -ENOBUFS;
}

// Whole group, which holds nothing, or a pin on one page. It needs a frame, and the clock found
// only dirty pages, one of them in `frame`, or scanned few frames (no_frame). Returns 0: try again,
// a page may have been written back. If no page could be written back for as long as a group looks
// for a frame, returns the disk's error, or -ENOBUFS if it knows none. Or the code that ended a
// wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t clean_victim(const Group& g, const cache_view& c,
                                                        std::uint32_t frame,
                                                        wait_deadline& deadline) {
    std::int64_t code = 0;
    bool offers = false;
    pending_write w{};
    if (g.is_leader()) {
        deadline.come_back(g, c);
        code = find_write(g, c, frame, deadline, w, offers);
        if (code == 1) count_victim_writers(c, 1);
    }
    code = share_code(g, code);
    offers = g.broadcast(offers);
    const bool held = code == 1;
    if (held) {
        share_write(g, w);
        code = offers ? write_offering(g, c, w) : write_alone(g, c, w);
    }
    if (g.is_leader()) {
        if (held) count_victim_writers(c, ~std::uint32_t{0});
        if (held && code == 0) {
            note_writes(c, false);
            free_written(g, c, w.frame, deadline);
        } else if (held) {
            deadline.write_error = code;
            // Passed over for a round: other pages are tried.
            page_word* const word = &c.words[w.word_index];
            touch_as_seen(word, load_relaxed(word));
        }
        const bool others_write = !held && (victim_writers(c) != 0 || code == -EAGAIN);
        const bool gained = deadline.offered_frame != no_frame || (held && code == 0);
        // A group that lets another group write has not tried.
        if (!gained && (held || code != -EAGAIN)) deadline.tried_write = true;
        if (!gained) g.pause(6);
        const std::int64_t late = gained ? 0 : deadline.check(g, c);
        code = late != 0 && late != -ETIME ? late : 0;
        // While other groups write pages back, their time limit counts, not that of a group that
        // looks for a frame; unless its own write failed.
        if (late == -ETIME &&
            (!others_write || g.now_ns() - deadline.start_ns() > c.request_wait_ns))
            code = why_no_frame(c, deadline);
    }
    return share_code(g, code);
}

}  // namespace penstock::engine
