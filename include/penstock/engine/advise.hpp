// Carries out the hints of a program about how it will read (penstock/advise.hpp).
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/load.hpp"
#include "penstock/engine/read_ahead.hpp"

namespace penstock::engine {

// Leader only. Requests prefetch loads of the pages [first, end) into the tier, as long as there is
// room without waiting and they take at most half of the tier. Returns how many pages of the range,
// counted from `first`, are at hand, with a neighbour, or on their way.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t want_pages(const Group& g, const cache_view& c,
                                                       const file_handle& f, std::uint64_t first,
                                                       std::uint64_t end) {
    if (c.tier.words == nullptr) return 0;
    std::uint64_t room = (std::uint64_t{c.tier.frame_count} + 1) / 2, page = first;
    while (page < end && room > 0) {
        if (find_word(c, f, page) == no_word && ask_for_leaf(g, c, f, page) != 0) break;
        if (is_at_hand(c, f, page) || is_next_door(c, f, page)) {
            ++page;
            continue;
        }
        const std::uint64_t most = end - page < room ? end - page : room,
                            asked = ask_for_fill(g, c, f.slot, page, most);
        // Nothing was requested: another group or a neighbour had this page first, or tier or ring
        // have no room now.
        if (asked == 0 && !is_at_hand(c, f, page) && !is_next_door(c, f, page)) break;
        page += asked;
        room -= asked;
    }
    return page - first;
}

// Leader only. Drops the pages [first, end) from cache and tier, where no group holds them.
PENSTOCK_HD PENSTOCK_NOINLINE inline void drop_pages(const cache_view& c, const file_handle& f,
                                                     std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t page = first; page < end; ++page) {
        const std::uint64_t index = find_word(c, f, page);
        if (index == no_word) continue;
        sweep_word(c, &c.words[index], load_relaxed(&c.words[index]));
        if (c.tier.words == nullptr || load_relaxed(&c.tier.words[index]) == 0) continue;
        settle(c.tier, make_owned(0, index));
        sweep_word(c.tier, &c.tier.words[index], load_relaxed(&c.tier.words[index]));
    }
}

}  // namespace penstock::engine
