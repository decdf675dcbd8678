// Lending: copies of what the cache, or else the host tier, has of a file, for a thread that is no
// group and holds no descriptor: reads of programs (src/peers/cached_reads.hpp). A loan is a range
// of a file, cut into parts; a group looks up a part, pins its page, copies, unpins, and says so.
//
//   word           where        writer                                    values
//   states[part]   host memory  the host, before groups begin; then the   0 not looked at;
//       part_missing; part_coming: it is there, and
//                               one group whose part it is                being copied; part_there:
//                                   it was copied
//
// A group waits for nothing and loads nothing: a page that is absent, loading, on its way into the
// tier, dirty, or pinned too often is missing. The page stays where it is, and its use bit as it
// was in the cache.
//
// Invariants
//  (1) Of the file's slot only the host knows whether its version is the file as it is now; it asks
//      that before and after (file_registry::lend). So a write to the page that comes meanwhile is
//      found out afterwards, and the copy is not used.
//  (2) While the loan lasts the host gives the slot, its words and its leaves to no other file,
//      even when groups take the file down. So a word that is pinned here is never one that
//      a group resets, and the record of a live file word of that generation is the file's own.
//  (3) part_missing and part_there are the last that a group does. When all parts have one of these
//      the range may be used for another loan, and the file may go.
//
// Order pairs: look (acquire) with the release that made the file word live: record and directory
// are complete. pin (acquire) with publish; unpin (release) with try_evict, as for any reader
// (engine/page_word.hpp). tell_part (release, system) after a system fence of every thread, with
// look_at_part (acquire, system): a host thread that sees part_there sees the bytes, and the pin is
// gone.
#pragma once

#include <cstdint>

#include "penstock/engine/page_table.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/engine/tier.hpp"

namespace penstock::engine {

inline constexpr std::uint32_t part_unknown = 0, part_missing = 1, part_coming = 2, part_there = 3;

constexpr PENSTOCK_HD bool is_settled(std::uint32_t state) {
    return state == part_missing || state == part_there;
}

// Offset and part_bytes are such that no part lies in two pages, multiples of 16; `to` has room for
// whole parts and is aligned to 16 bytes.
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

// One thread. Pins the page if it can be copied as it is: its word; 0 if not.
PENSTOCK_HD PENSTOCK_INLINE page_word pin_clean(page_word* word) {
    page_word seen = load_relaxed(word);
    if (!is_valid(seen) || is_dirty(seen)) return 0;
    seen = pin(word);
    if (is_valid(seen) && !is_dirty(seen) && pins_of(seen) < pin_limit) return seen;
    unpin(word);
    return 0;
}

// Leader only. The word that was pinned, in the cache or the tier, and where the page is; null:
// neither has it.
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
    if (is_dirty(load_relaxed(&c.words[index]))) return nullptr;  // what the tier has is older
    bool pending = false;
    from = pin_in_tier(g, c, index, pending);
    if (from == nullptr) return nullptr;
    in_tier = true;
    if (!pending) return &c.tier.words[index];
    unpin(&c.tier.words[index]);
    return nullptr;
}

// Whole group. One part of a loan.
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
    in_tier = g.broadcast(in_tier ? 1 : 0) != 0;
    if (from == nullptr) return;
    g.sync();  // the leader's acquire of the pin comes before every thread's reads of the frame
    const std::uint64_t left = loan.bytes - begin,
                        wanted = left < loan.part_bytes ? left : loan.part_bytes;
    // A page has zeros behind the file's end.
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
