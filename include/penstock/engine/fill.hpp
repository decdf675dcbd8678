// Fills (prefetch loads): a service thread reads pages into frames of the host tier while no group
// waits for them.
//
//   word                    where   writer                                  values
//   fill_marks[frame]       device  the group that asks or settles it       0 the frame holds its
//                                                                           page; stamp: on its
//                                                                           way; fill_failed
//   done_marks[frame]       host    a service thread                        stamp of the last fill
//                                                                           that ended, + 1 if it
//                                                                           failed
//
// A group that asks for a fill takes the frame, writes its mark, publishes the page in the tier
// with a pin that belongs to the fill, and posts the request. The group itself holds nothing
// afterwards. While the mark is a stamp, any group that needs the page or its frame looks at the
// done mark. If the two match, the group exchanges the mark for 0 or fill_failed. The group whose
// exchange succeeds takes the fill's pin off.
//
// Invariants
//  (1) A stamp is used once, for it is made of ring and ticket; so a done mark of an earlier fill
//      never matches.
//  (2) While the mark is a stamp, the page word that names the frame carries the fill's pin, so the
//      frame cannot change hands while the host writes to it.
//  (3) Exactly one group takes that pin off: the group whose exchange succeeded.
//
// Order pairs: end of a fill (release, system, src/service/fills.cpp) with read_done (acquire,
// system): the bytes are there. settle_mark (acq_rel) with read_mark (acquire): the bytes are there
// also for groups that find the mark settled (engine/ring.hpp).
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

inline constexpr std::uint64_t fill_failed = 1;
inline constexpr std::uint32_t max_fill_pages = 32;  // of one request
inline constexpr std::uint32_t max_rings = 256;      // a stamp has eight bits for it

enum class fill_state { ready, pending, failed };

constexpr PENSTOCK_HD std::uint64_t make_stamp(std::uint32_t ring, std::uint64_t ticket) {
    return (ticket + 1) << 9 | std::uint64_t{ring} << 1;
}

// Before the page is published.
PENSTOCK_HD PENSTOCK_INLINE void mark_frame(const tier_view& t, std::uint32_t frame,
                                            std::uint64_t stamp) {
    begin_mark(&t.fill_marks[frame], stamp);
}

// The caller holds a pin on the tier's word `word`, which names `frame`. Takes the fill's pin off
// if the fill has ended.
PENSTOCK_HD PENSTOCK_INLINE fill_state look_at_fill(const tier_view& t, page_word* word,
                                                    std::uint32_t frame) {
    const std::uint64_t mark = read_mark(&t.fill_marks[frame]);
    if (mark == 0) return fill_state::ready;
    if (mark == fill_failed) return fill_state::failed;
    const std::uint64_t done = read_done(&t.done_marks[frame]);
    if ((done & ~fill_failed) != mark) return fill_state::pending;
    const std::uint64_t outcome = done & fill_failed;
    if (settle_mark(&t.fill_marks[frame], mark, outcome)) unpin(word);
    return outcome == 0 ? fill_state::ready : fill_state::failed;
}

// Leader only, before a search judges a frame. Takes off the pin of a fill that has ended if no
// group came for the page. The leader pins the page first, which makes sure that the word still
// names the frame; so the pin taken off is the fill's.
PENSTOCK_HD inline void settle(const tier_view& t, frame_word owner) {
    page_word* const word = &t.words[owner_word_index(owner)];
    const page_word seen = load_relaxed(word);
    if (!is_valid(seen) || pins_of(seen) == 0) return;
    if (load_relaxed(&t.fill_marks[frame_of(seen)]) <= fill_failed) return;
    const page_word pinned = pin(word);
    if (is_valid(pinned)) look_at_fill(t, word, frame_of(pinned));
    unpin(word);
}
PENSTOCK_HD inline void settle(const cache_view&, frame_word) {}

}  // namespace penstock::engine
