// Takes down a closed file, so that its slot and its table can serve another file.
//
// The group that does so owns the file word (busy), so no group can open the file meanwhile. It
// evicts the file's pages one by one, as the clock would. Clock searches that run beside it are
// harmless: each frame goes to the group that wins the compare-and-swap on its page word. Only when
// every page word is absent does the table go back to the host; a search that still remembers a
// word of the table fails on that word, or evicts the page that rightly owns the word by then.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

// Leader only. Evicts the page if it is there; false if it is pinned, loading, or has bytes that
// the file does not have yet.
template <typename Pool>
PENSTOCK_HD inline bool sweep_word(const Pool& c, page_word* word, page_word seen) {
    while (!is_absent(seen) || pins_of(seen) != 0) {
        if (!is_valid(seen) || pins_of(seen) != 0 || is_dirty(seen)) return false;
        if (try_evict(word, seen)) {
            set_frame_word(c, frame_of(seen), frame_free);
            return true;
        }
        seen = load_relaxed(word);
    }
    return true;
}

// Leader only. The same for the tier, after the cache: a page on its way from the cache is found
// here as loading. Fills that no group came for are settled first.
PENSTOCK_HD PENSTOCK_NOINLINE inline bool sweep_tier(const cache_view& c, std::uint64_t first,
                                                     std::uint64_t end) {
    PENSTOCK_ROLLED
    for (std::uint64_t i = first; i < end; ++i) {
        if (load_relaxed(&c.tier.words[i]) == 0) continue;  // never used, most often
        settle(c.tier, make_owned(0, i));
        if (!sweep_word(c.tier, &c.tier.words[i], load_relaxed(&c.tier.words[i]))) return false;
    }
    return true;
}

// Leader only. Evicts every page of a piece of a table; false if a page is pinned or loading. Eight
// words are fetched at a time, because one thread that waits for each word of a huge table alone
// would take seconds.
PENSTOCK_HD PENSTOCK_NOINLINE inline bool sweep_words(const cache_view& c, std::uint64_t first,
                                                      std::uint64_t count_words) {
    constexpr std::uint64_t batch = 8;
    const std::uint64_t end = first + count_words;
    for (std::uint64_t i = first; i < end; i += batch) {
        page_word seen[batch], any = 0;
        PENSTOCK_UNROLL
        for (std::uint64_t k = 0; k < batch; ++k) {
            seen[k] = i + k < end ? load_relaxed(&c.words[i + k]) : page_word{0};
            any |= seen[k];
        }
        if (any == 0) continue;  // never used, most often
        PENSTOCK_ROLLED
        for (std::uint64_t k = 0; k < batch; ++k)
            if (i + k < end && !sweep_word(c, &c.words[i + k], seen[k])) return false;
    }
    return true;
}

PENSTOCK_HD PENSTOCK_NOINLINE inline bool sweep_both(const cache_view& c, std::uint64_t first,
                                                     std::uint64_t count_words) {
    if (!sweep_words(c, first, count_words)) return false;
    if (c.tier.words == nullptr) return true;
    // In order: the words of the tier are looked at after those of the cache, for sweep_tier counts
    // on what the evictions that these loads saw had claimed there before.
    end_load_for_read();
    return sweep_tier(c, first, first + count_words);
}

PENSTOCK_HD PENSTOCK_NOINLINE inline bool sweep_leaves(const cache_view& c, std::uint64_t directory,
                                                       std::uint64_t entries) {
    bool clean = true;
    PENSTOCK_ROLLED
    for (std::uint64_t i = 0; i < entries; ++i) {
        const page_word entry = load_relaxed(&c.words[directory + i]);
        if (entry != 0) clean = sweep_both(c, entry - 1, std::uint64_t{1} << c.leaf_shift) && clean;
    }
    return clean;
}

PENSTOCK_HD inline bool sweep_table(const cache_view& c, const file_record& record) {
    const std::uint64_t growth = c.writes != nullptr ? load_relaxed(&record.growth) : growth_none;
    const std::uint64_t entries =
        record.two_level != 0 ? directory_entries(c, record.page_count) : 0;
    const std::uint64_t grown_entries = growth >= growth_first ? c.growth_entries : 0;
    bool clean = record.two_level == 0 ? sweep_both(c, record.table, record.page_count)
                                       : sweep_leaves(c, record.table, entries);
    clean = sweep_leaves(c, growth - growth_first, grown_entries) && clean;
    if (!clean) return false;
    // The entries become page words of another file, whose state must be absent.
    reset_words(c, record.table, entries);
    reset_words(c, growth - growth_first, grown_entries);
    return true;
}

// Leader only. Takes down one closed file, the first from the hand on. Returns 0 if it did, or
// -ENFILE if it found none. The latter may hold only for a moment: another group may be taking a
// file down, or may have closed one behind the hand. So callers try again for a while
// (`frame_wait_ns`, as for a frame).
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t retire_one(const Group& g, const cache_view& c) {
    const std::uint32_t hand = atomic_load<order::relaxed>(c.retire_hand);
    for (std::uint32_t i = 0; i < c.file_slots; ++i) {
        const std::uint32_t slot = (hand + i) % c.file_slots;
        const file_word seen = look(&c.file_words[slot]);
        if (!is_closed(seen) || has_window(c, slot, file_generation(seen)) ||
            may_be_cut_yet(c, slot))
            continue;
        if (!begin_retire(&c.file_words[slot], seen)) continue;
        atomic_store<order::relaxed>(c.retire_hand,
                                     (slot + 1) % c.file_slots);  // a hint: either store may win
        const std::uint32_t generation = file_generation(seen);
        if (!sweep_table(c, c.file_records[slot])) {
            undo_retire(&c.file_words[slot],
                        generation);  // a mapping that outlived its descriptor pins a page
            continue;
        }
        ring_ticket at{};
        std::int64_t code = claim_slot(g, c, true, at);
        if (code != 0) {
            undo_retire(&c.file_words[slot], generation);
            return code;
        }
        // Vacant before the host hears of it: the host may give the slot out again at once.
        end_retire(&c.file_words[slot], generation);
        post(g, c, at, file_request{op::retire, slot, generation}.packed());
        code = await(g, c, at);
        if (code != 0) orphan_slot(c, at);
        else recycle_slot(c, at);
        return code;
    }
    return -ENFILE;
}

}  // namespace penstock::engine
