// The host tier: frames in host memory, pinned on a GPU, for pages that the cache does not hold:
// victims of its clock, and pages that were read ahead or requested in advance. Groups look these
// pages up and copy them without the host.
//
// The tier is a second pool of frames with page words of its own, one for each word of the cache's
// arena and with the same states (engine/page_word.hpp), so a page is found in both by the same
// index. A page may be in both at once: its bytes are the same, for a changed file is another file.
//
// Ways in: a victim is claimed in the tier before its eviction from the cache, and copied and
// published after it. A fill is published at once with a pin, and its bytes follow
// (engine/fill.hpp). Ways out: the page's frame is needed (the tier's own clock), or its file is
// taken down (engine/retire.hpp).
//
// Invariants
//  (1) A victim's word in the tier is claimed while its page is still in the cache. So a file that
//      is taken down meanwhile is found to have a page under way, and its words do not pass to
//      another file with this one's bytes on their way in. Test:
//      dropped_while_its_file_is_taken_down; canary: keep_after_eviction.
//  (2) No group waits here for a frame of the tier: if a few steps find none, the page is dropped
//      as if there were no tier.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

// A result of a load: its page could not be read ahead. The code never leaves the engine, and no
// file operation returns it.
inline constexpr std::int64_t load_again = -ERESTART;

// A page on its way from the cache to the tier: claimed there, with a frame; or nothing. Leader
// only.
struct tier_save {
    std::uint64_t word_index;
    std::uint32_t frame;
    std::uint32_t file_slot;
    bool wanted;
};

// Leader only. Undoes the save.
PENSTOCK_HD PENSTOCK_NOINLINE inline void cancel_save(const cache_view& c, tier_save& save) {
    if (!save.wanted) return;
    set_frame_word(c.tier, save.frame, frame_free);
    abandon(&c.tier.words[save.word_index]);
    save.wanted = false;
}

// The policy for the clock's victims: claims the page's word in the tier if the page is worth
// keeping. It is not if its file is closed or has a window. The page's frame in the tier
// is found afterwards (find_frame): a search within a search would cost every kernel registers.
struct keep_in_tier {
    const cache_view& c;
    tier_save& save;

    PENSTOCK_HD void begin(frame_word owner) {
        save.wanted = false;
        if (c.tier.words == nullptr) return;
        save.word_index = owner_word_index(owner);
        save.file_slot = owner_file_slot(owner);
        const file_word file = look(&c.file_words[save.file_slot]);
        const page_word seen = load_relaxed(&c.tier.words[save.word_index]);
        if (!is_absent(seen) || is_closed(file) ||
            has_window(c, save.file_slot, file_generation(file)))
            return;
        save.wanted = try_claim(&c.tier.words[save.word_index], seen);
    }
    PENSTOCK_HD void undo() {
        if (save.wanted) abandon(&c.tier.words[save.word_index]);
        save.wanted = false;
    }
};

// Leader only, waits for nothing: takes a frame of the tier, if a search of a few steps finds one.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool take_tier_frame(const Group& g, const cache_view& c,
                                                   std::uint64_t spread, std::uint32_t& frame) {
    keep_nothing nothing;
    return try_take(g, c, c.tier, spread, frame, nothing);
}

// Leader only; the clock has evicted the page. Gives the save a frame, or gives the save up.
template <typename Group>
PENSTOCK_HD inline void find_frame(const Group& g, const cache_view& c, tier_save& save) {
    if (!save.wanted || take_tier_frame(g, c, save.word_index, save.frame)) return;
    abandon(&c.tier.words[save.word_index]);
    save.wanted = false;
}

// Whole group; `victim` holds the bytes of the page and is the group's own. Puts the page into the
// tier. Frames of the tier are read under a pin only, so the group that took this frame may write
// to it without a fence for readers that have no pin.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void finish_save(const Group& g, const cache_view& c,
                                               const tier_save& save, const std::byte* victim) {
    g.copy_out(c.tier_address(save.frame), victim, c.page_bytes());
    // Called by every thread: the bytes have to be in host memory before another group copies them
    // from there, or a service thread writes the next page over them.
    system_fence();
    g.sync();  // every thread's part is written before the leader publishes
    if (!g.is_leader()) return;
    mark_frame(c.tier, save.frame, 0);
    publish(&c.tier.words[save.word_index], save.frame);
    set_frame_word(c.tier, save.frame, make_owned(save.file_slot, save.word_index));
    unpin(&c.tier.words[save.word_index]);
    count(g, c, count_tier_saves);
}

// Leader only. Drops a page that the host could not read, unless other groups hold it; then these
// drop it.
PENSTOCK_HD PENSTOCK_NOINLINE inline void drop_failed(const cache_view& c, page_word* word,
                                                      std::uint32_t frame) {
    unpin(word);
    const page_word seen = load_relaxed(word);
    if (is_valid(seen) && pins_of(seen) == 0 && frame_of(seen) == frame && try_evict(word, seen))
        set_frame_word(c.tier, frame, frame_free);
}

// Leader only. Pins the page in the tier if it is there or on its way; returns null if not.
// `pending`: its bytes are not there yet.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE const std::byte* pin_in_tier(const Group& g, const cache_view& c,
                                                           std::uint64_t word_index,
                                                           bool& pending) {
    pending = false;
    if (c.tier.words == nullptr) return nullptr;
    page_word* const word = &c.tier.words[word_index];
    page_word seen = load_relaxed(word);
    if (!is_valid(seen)) return nullptr;
    seen = pin(word);
    if (!is_valid(seen) || pins_of(seen) >= pin_limit) {
        unpin(word);
        return nullptr;
    }
    const fill_state state = look_at_fill(c.tier, word, frame_of(seen));
    if (state == fill_state::failed) {
        count(g, c, count_fill_failures);
        drop_failed(c, word, frame_of(seen));
        return nullptr;
    }
    touch(word, seen);
    pending = state == fill_state::pending;
    return c.tier_address(frame_of(seen));
}

// Leader only; the page is pinned in the tier. Waits for its bytes. Returns 0; load_again: the host
// could not read them ahead, though a request of the group's own may succeed; or the code that
// ended the wait. On error the pin is gone.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_fill(const Group& g, const cache_view& c,
                                                      std::uint64_t word_index,
                                                      const std::byte* frame_bytes) {
    page_word* const word = &c.tier.words[word_index];
    const auto frame = static_cast<std::uint32_t>(
        static_cast<std::uint64_t>(frame_bytes - c.tier.frames) >> c.page_shift);
    wait_deadline waiting(g, c.request_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        const fill_state state = look_at_fill(c.tier, word, frame);
        if (state == fill_state::ready) return 0;
        if (state == fill_state::failed) {
            count(g, c, count_fill_failures);
            drop_failed(c, word, frame);
            return load_again;
        }
        g.pause(round);
        if (round % 16 != 15) continue;
        const std::int64_t code = waiting.check(g, c);
        if (code == 0) continue;
        unpin(word);
        return code == -ETIME ? -ETIMEDOUT : code;
    }
}

}  // namespace penstock::engine
