// Keeping a page that the clock evicts: the group that takes its frame claims the page's word in
// the host tier before the eviction, and copies the bytes there after it (engine/tier.hpp).
//
//   begin_keep  before the eviction   claims the word, if the page is worth keeping
//   undo_keep   after an eviction that failed
//   find_frame  after the eviction    a frame of the tier, or the page is dropped
//
// The clock calls the first two. The frame in the tier is found afterwards: a search within a
// search would cost every kernel registers.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

// A page on its way from the cache to the tier: claimed there, with a frame; or nothing. Leader
// only.
struct tier_save {
    std::uint64_t word_index;
    std::uint32_t frame;
    std::uint32_t file_slot;
    bool wanted;
};

// Leader only, for the page of a frame whose frame word is `owner`. It is not worth keeping if its
// file is closed or a window shows the page.
PENSTOCK_HD inline void begin_keep(const cache_view& c, frame_word owner, tier_save& save) {
    save.wanted = false;
    if (c.tier.words == nullptr) return;
    save.word_index = owner_word_index(owner);
    save.file_slot = owner_file_slot(owner);
    const file_word file = look(&c.file_words[save.file_slot]);
    const page_word seen = load_relaxed(&c.tier.words[save.word_index]);
    if (!is_absent(seen) || is_closed(file) || has_window(c, save.file_slot, file_generation(file)))
        return;
    save.wanted = try_claim(&c.tier.words[save.word_index], seen);
}

// Leader only.
PENSTOCK_HD inline void undo_keep(const cache_view& c, tier_save& save) {
    if (save.wanted) abandon(&c.tier.words[save.word_index]);
    save.wanted = false;
}

}  // namespace penstock::engine
