// Peer reads: copies pages of a file from the cache, or else from the host tier, for a thread that
// is no group and holds no descriptor. It serves reads of FUSE clients
// (src/peers/cached_reads.hpp). A loan is a range of a file, cut into parts. A group looks up a
// part, pins its page, copies, unpins, and stores the outcome.
//
//   word           where        writer                             values
//   states[part]   host memory  the host, before groups begin;     0: not looked at
//                               then the group that works on the   part_missing
//                               part                               part_coming: it is there and is
//                                                                  being copied
//                                                                  part_there: it was copied
//
// A group waits for nothing and loads nothing: a page that is absent, loading, on its way into the
// tier, dirty, or pinned too often is missing, and so is one that only the tier has of a file that
// was written. The page stays where it is, and its use bit in the cache does not change.
//
// Invariants
//  (1) Only the host knows whether the version of the file in a slot is the current file; it checks
//      that before and after (file_registry::lend). So the host notices a write to the page that
//      comes meanwhile, and does not use the copy.
//  (2) While the loan lasts the host gives the slot, its words and its leaves to no other file,
//      even when groups take the file down. So a word that is pinned here is never one that
//      a group resets, and the record of a live file word of that generation is the file's own.
//  (3) Storing part_missing or part_there is the last step of a group. When all parts have one of
//      these states, the range may be used for another loan, and the file may go.
//
// Order pairs: look (acquire) with the release that made the file word live: record and directory
// are complete. pin (acquire) with publish; unpin (release) with try_evict, as for any reader
// (engine/page_word.hpp). tell_part (release, system) after a system fence of every thread, with
// look_at_part (acquire, system): a host thread that sees part_there sees the bytes, and the pin is
// gone.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/page_table.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/engine/tier.hpp"

namespace penstock::engine {

inline constexpr std::uint32_t part_unknown = 0, part_missing = 1, part_coming = 2, part_there = 3;

constexpr PENSTOCK_HD bool is_settled(std::uint32_t state) {
    return state == part_missing || state == part_there;
}

// One loan. Offset and part_bytes are multiples of 16 and such that no part lies in two pages. `to`
// has room for whole parts and is aligned to 16 bytes.
struct lend_order {
    std::uint32_t slot;
    std::uint32_t generation;
    std::uint64_t offset;
    std::uint64_t bytes;
    std::uint64_t part_bytes;
    std::byte* to;
    std::uint32_t* states;

    constexpr PENSTOCK_HD std::uint32_t parts() const {
        return part_bytes == 0 ? 0
                               : static_cast<std::uint32_t>((bytes + part_bytes - 1) / part_bytes);
    }
};

// One thread. Pins the page if it can be copied as it is. Returns its word, or 0 if not.
PENSTOCK_HD PENSTOCK_INLINE page_word pin_clean(page_word* word) {
    page_word seen = load_relaxed(word);
    if (!is_valid(seen) || is_dirty(seen)) return 0;
    seen = pin(word);
    if (is_valid(seen) && !is_dirty(seen) && pins_of(seen) < pin_limit) return seen;
    unpin(word);
    return 0;
}

// Leader only. Pins the page in the cache or the tier. Returns the pinned word, and in `from` where
// the page is; null if neither has it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE page_word* pin_to_lend(const Group& g, const cache_view& c,
                                                     const lend_order& loan, std::uint64_t page,
                                                     const std::byte*& from, bool& in_tier) {
    in_tier = false;
    const file_word file = look(&c.file_words[loan.slot]);
    if (file_state(file) != file_live || file_generation(file) != loan.generation) return nullptr;
    const file_handle f = handle_of(c, loan.slot);
    const std::uint64_t index = find_word(c, f, page);
    if (index == no_word) return nullptr;
    if (const page_word seen = pin_clean(&c.words[index]); seen != 0) {
        from = c.frame_address(frame_of(seen));
        return &c.words[index];
    }
    // The tier's copy may be older then, also of a page that was written back: no load takes it.
    if (is_dirty(load_relaxed(&c.words[index])) || is_granted(c, loan.slot)) return nullptr;
    bool pending = false;
    from = pin_in_tier(g, c, index, pending);
    if (from == nullptr) return nullptr;
    in_tier = true;
    if (!pending) return &c.tier.words[index];
    unpin(&c.tier.words[index]);
    return nullptr;
}

// Whole group. Copies one part of a loan.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void lend_part(const Group& g, const cache_view& c,
                                             const lend_order& loan, std::uint32_t part) {
    const std::uint64_t begin = part * loan.part_bytes, at = loan.offset + begin;
    const std::byte* from = nullptr;
    page_word* pinned = nullptr;
    bool in_tier = false;
    if (g.is_leader()) {
        pinned = pin_to_lend(g, c, loan, at >> c.page_shift, from, in_tier);
        tell_part(&loan.states[part], pinned == nullptr ? part_missing : part_coming);
    }
    from = reinterpret_cast<const std::byte*>(
        g.broadcast(pinned == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(from)));
    in_tier = g.broadcast(in_tier);
    if (from == nullptr) return;
    g.sync();  // the leader's acquire of the pin comes before every thread's reads of the frame
    const std::uint64_t left = loan.bytes - begin,
                        wanted = left < loan.part_bytes ? left : loan.part_bytes;
    // A page has zeros behind the end of the file.
    const std::uint64_t whole = (wanted + 15) & ~std::uint64_t{15};
    from += at & (c.page_bytes() - 1);
    if (in_tier) g.copy_in(loan.to + begin, from, whole);
    else g.copy_out(loan.to + begin, from, whole);
    system_fence();
    g.sync();  // every thread's bytes are in host memory before the leader lets the page go and
               // says so
    if (!g.is_leader()) return;
    unpin(pinned);
    tell_part(&loan.states[part], part_there);
}

}  // namespace penstock::engine
