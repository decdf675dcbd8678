// Finding a frame: a clock over the frames of a pool, in shards, with a use bit. A pool is the
// cache itself (cache_view) or its host tier (tier_view): both have page words, frame words and
// hands under the same names.
//
// A frame that was never used is taken first, whatever shard it lies in, so that no page is dropped
// while there is room. After that each shard has its own hand, and a miss starts at the shard that
// its page's number picks, so groups that miss at the same time touch different words and one group
// alone still uses all shards. A step of the hand looks at one frame: a free frame is taken; a
// frame whose page is pinned or loading is passed over; a page with its use bit set loses the bit
// and is passed over, unless its file is closed; a dirty page is passed over, but the search
// remembers the first: when the hand has met many dirty pages and no clean page, the caller is told
// to write a page back (engine/victim.hpp). Any other page is evicted by one compare-and-swap on
// its page word.
//
// Invariants
//  (1) A frame is free, or busy (in the hands of one group), or owned by the page that its frame
//      word names, or a copy of a page.
//  (2) Only the group that took a frame by compare-and-swap (from free, or by try_evict of its
//      page) writes its frame word, and only as long as no page can be evicted from the frame: the
//      frame word names the page before its page word is published, or while the group has a pin on
//      it. A slow writer could overwrite the word of the next owner, and the frame would be lost.
//
// Progress: bounded. A search ends with a frame, with -ENOBUFS when all frames stayed pinned for
// frame_wait_ns (or pinned and loading for request_wait_ns), or with the abort code. (CLOCK:
// Corbato 1969, "A paging experiment with the Multics system".)
#pragma once

#include "penstock/base/hash.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/fill.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// Frame words are hints to the clock; the exclusive step is the compare-and-swap on frame or page
// word. Release where a frame becomes free: pairs with the acquire of the compare-and-swap that
// takes it. Busy and owned order nothing: a group that takes an owned frame does so by its page
// word, and the release of that word's publish comes after this store.
template <typename Pool>
PENSTOCK_HD PENSTOCK_INLINE void set_frame_word(const Pool& pool, std::uint32_t frame,
                                                frame_word value) {
    if ((value & frame_state_mask) == frame_free)
        atomic_store<order::release>(&pool.frame_words[frame], value);
    else store_hint(&pool.frame_words[frame], value);
}

enum class frame_step { taken, skipped, busy, dirty };

// The policy for a page that is about to be evicted: begin(owner) is called before the eviction,
// and undo() if the eviction failed. This policy does nothing.
struct keep_nothing {
    PENSTOCK_HD void begin(frame_word) {}
    PENSTOCK_HD void undo() {}
};

// Leader only: tries to take this one frame.
template <typename Group, typename Pool, typename Keep>
PENSTOCK_HD inline frame_step try_take_frame(const Group& g, const cache_view& c, const Pool& pool,
                                             std::uint32_t frame, Keep& keep) {
    frame_word* const own = &pool.frame_words[frame];
    const frame_word owner = atomic_load<order::acquire>(own);
    const frame_word state = owner & frame_state_mask;
    if (state == frame_busy) return frame_step::busy;
    if (state == frame_copy) return frame_step::skipped;
    if (state == frame_free)
        return atomic_compare_swap<order::acquire>(own, owner, frame_busy) ? frame_step::taken
                                                                           : frame_step::skipped;
    settle(pool, owner);
    page_word* const word = &pool.words[owner_word_index(owner)];
    const page_word seen = load_relaxed(word);
    if (!is_valid(seen) || frame_of(seen) != frame || pins_of(seen) != 0)
        return frame_step::skipped;
    // Another cache has the page of a replica, most likely, so its use buys no second round.
    if ((seen & use_bit) != 0 && (owner & replica_bit) == 0 &&
        !is_closed(look(&c.file_words[owner_file_slot(owner)]))) {
        age(word);
        return frame_step::skipped;
    }
    if (is_dirty(seen)) return frame_step::dirty;
    keep.begin(owner);
    if (!try_evict(word, seen)) {
        keep.undo();
        return frame_step::skipped;
    }
    set_frame_word(pool, frame, frame_busy);
    count(g, c, Pool::evictions);
    return frame_step::taken;
}

// Are there frames that were never used? A hint: the answer changes once.
template <typename Pool>
PENSTOCK_HD PENSTOCK_INLINE bool is_filling(const Pool& c) {
    return atomic_load<order::relaxed>(c.fill_done) == 0;
}

// Leader only: takes a frame that was never used, if any is left. The word that says that none is
// left is written once.
template <typename Pool>
PENSTOCK_HD inline bool take_fresh(const Pool& c, std::uint64_t start, std::uint32_t& frame) {
    if (!is_filling(c)) return false;
    const std::uint32_t per_shard = c.frame_count / c.clock_shards;
    for (std::uint32_t i = 0; i < c.clock_shards; ++i) {
        const std::uint32_t shard = static_cast<std::uint32_t>(start + i) & (c.clock_shards - 1);
        std::uint32_t* const used = &c.clock_hands[std::size_t{shard} * clock_hand_stride + 1];
        while (atomic_load<order::relaxed>(used) < per_shard) {
            const std::uint32_t place = atomic_fetch_add<order::relaxed>(used, std::uint32_t{1});
            if (place >= per_shard) break;
            frame = shard * per_shard + place;
            // A clock hand may have taken the frame first.
            if (atomic_compare_swap<order::acquire>(&c.frame_words[frame], frame_free, frame_busy))
                return true;
        }
    }
    atomic_store<order::relaxed>(c.fill_done, std::uint32_t{1});
    return false;
}

// The findings of a search: whether a loader held a frame, which may be free later; how many pages
// were dirty, and the frame of the first.
struct sweep_notes {
    bool saw_busy = false;
    std::uint32_t dirty_pages = 0, dirty_frame = no_frame;
    std::uint32_t enough_dirty_pages = 128;  // at this many the search ends: most of the rest will
                                             // be dirty too, and writing takes longer than looking
};

// Leader only: one search of at most `budget` steps, from the shard that `start` picks on.
template <typename Group, typename Pool, typename Keep>
PENSTOCK_HD inline bool sweep_clock(const Group& g, const cache_view& c, const Pool& pool,
                                    std::uint64_t start, std::uint64_t budget, std::uint32_t& frame,
                                    sweep_notes& notes, Keep& keep) {
    const std::uint32_t per_shard = pool.frame_count / pool.clock_shards;
    // Two rounds of a shard: the first clears use bits, the second evicts. Then the next shard.
    const std::uint64_t per_visit = 2 * std::uint64_t{per_shard};
    std::uint32_t shard = static_cast<std::uint32_t>(start) & (pool.clock_shards - 1);
    bool taken = false;
    std::uint64_t step = 0;
    while (step < budget && !taken && notes.dirty_pages < notes.enough_dirty_pages) {
        std::uint32_t* const hand = &pool.clock_hands[std::size_t{shard} * clock_hand_stride];
        for (std::uint64_t i = 0; i < per_visit && step < budget && !taken &&
                                  notes.dirty_pages < notes.enough_dirty_pages;
             ++i, ++step) {
            frame = shard * per_shard +
                    atomic_fetch_add<order::relaxed>(hand, std::uint32_t{1}) % per_shard;
            const frame_step outcome = try_take_frame(g, c, pool, frame, keep);
            taken = outcome == frame_step::taken;
            notes.saw_busy = notes.saw_busy || outcome == frame_step::busy;
            if (outcome == frame_step::dirty && notes.dirty_pages++ == 0) notes.dirty_frame = frame;
        }
        shard = (shard + 1) & (pool.clock_shards - 1);
    }
    count(g, c, count_clock_steps, step);
    return taken;
}

// A search that waits for nothing scans at most this many frames.
inline constexpr std::uint64_t few_steps = 64;

// Leader only, waits for nothing: takes a frame of the pool, in state busy, if a search of a few
// steps finds it.
template <typename Group, typename Pool, typename Keep>
PENSTOCK_HD inline bool try_take(const Group& g, const cache_view& c, const Pool& pool,
                                 std::uint64_t spread, std::uint32_t& frame, Keep& keep) {
    const std::uint64_t start = mix64(spread), all = 2 * std::uint64_t{pool.frame_count};
    sweep_notes notes;
    return take_fresh(pool, start, frame) ||
           sweep_clock(g, c, pool, start, all < few_steps ? all : few_steps, frame, notes, keep);
}

// A result of a search: no page could be evicted, but the page in `frame`, or another, could be
// written back.
inline constexpr std::int64_t must_write_back = 2;

// While victims are being written back, a new group scans at most this many frames before it writes
// a page back itself. So a search finds clean pages among dirty ones, and no group searches long
// where clean pages are rare.
inline constexpr std::uint64_t crowded_steps = 32;

// While write-backs fail, a search goes on past dirty pages and scans this many frames: only a
// clean page helps.
inline constexpr std::uint64_t patient_steps = 65536;

// Leader only: takes the frame that was offered when a wait ended, if it is still free.
PENSTOCK_HD inline bool take_offered(const cache_view& c, wait_deadline& deadline,
                                     std::uint32_t& frame) {
    frame = deadline.offered_frame;
    deadline.offered_frame = no_frame;
    return frame != no_frame && take_given_frame(c, frame);
}

// While write-backs fail: must this caller write a page back before it takes a frame? Yes if it
// makes its page dirty. Otherwise a full disk would fill the cache with pages that no write-back
// frees, and readers would find no frame. But a page of another file is no reason to fail. If the
// caller's own file has no error, the caller tries once and then takes a clean frame. The dirty
// pages of its own file are tried in their turn, so the caller gains few frames before its own file
// has an error too.
PENSTOCK_HD PENSTOCK_INLINE bool writes_first(const cache_view& c, const wait_deadline& deadline) {
    return deadline.makes_dirty &&
           (!deadline.tried_write || has_write_error(c, deadline.file_slot));
}

// Leader only, after search number `round` found no frame and no dirty page. Returns 0: search
// again; or the code that ends the search.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t wait_for_frame(const Group& g, const cache_view& c,
                                                          std::uint32_t round, bool saw_busy,
                                                          wait_deadline& deadline) {
    if (round == 0) {
        count(g, c, count_frame_waits);
        deadline.come_back(g, c);
    }
    const std::int64_t code = deadline.check(g, c);
    if (code != 0 && code != -ETIME) return code;
    if (code == -ETIME && !(saw_busy && g.now_ns() - deadline.start_ns() < c.request_wait_ns))
        return -ENOBUFS;
    g.pause(round);
    return 0;
}

// Leader only: takes a frame for the caller, in state busy; `spread` picks the shard to start at.
// Returns 0, must_write_back (then `frame` holds a dirty page, or is no_frame if the search met
// none), -ENOBUFS, or the abort code. `deadline` started when the verb first missed, so that groups
// which fail one after the other on the same page do not add up their waits. While loads hold
// frames the search goes on for request_wait_ns: a slow disk is no reason to fail. Without
// may_wait: one search of a few steps, -ENOBUFS if it finds nothing.
template <typename Group, typename Keep>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t take_frame(const Group& g, const cache_view& c,
                                                      std::uint64_t spread, bool may_wait,
                                                      wait_deadline& deadline, std::uint32_t& frame,
                                                      Keep& keep) {
    const std::uint64_t start = mix64(spread);
    bool failing = false, crowded = false;
    if (may_wait) {
        if (take_offered(c, deadline, frame)) return 0;
        failing = c.writes != nullptr && writes_fail(c);
        if (failing && writes_first(c, deadline)) {
            frame = no_frame;
            return must_write_back;
        }
    }
    if (take_fresh(c, start, frame)) return 0;
    if (may_wait) crowded = c.writes != nullptr && !failing && victim_writers(c) != 0;
    // Two rounds over all frames clear every use bit and then look again; more would only repeat
    // that before the pause.
    const std::uint64_t all = 2 * std::uint64_t{c.frame_count},
                        most = !may_wait ? few_steps
                               : failing ? patient_steps
                               : crowded ? crowded_steps
                                         : 1024,
                        slice = all < most ? all : most;
    for (std::uint32_t round = 0;; ++round) {
        sweep_notes notes;
        if (failing) notes.enough_dirty_pages = ~0u;
        if (sweep_clock(g, c, c, start + round, slice, frame, notes, keep)) return 0;
        if (!may_wait) return -ENOBUFS;
        if (crowded || notes.dirty_pages != 0) {
            frame = notes.dirty_frame;
            return must_write_back;
        }
        if (const std::int64_t code = wait_for_frame(g, c, round, notes.saw_busy, deadline);
            code != 0)
            return code;
    }
}

}  // namespace penstock::engine
