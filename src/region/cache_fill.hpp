// Filling pages of a region from the cache of a runtime, which has the file open and the pages in
// memory that the region's device reaches. A warp of the GPU and a CPU thread have the same body.
//
// The cache lends the page as it lends it to programs (penstock/engine/lend.hpp): it is pinned
// while it is copied, so its frame holds nothing else. Whether it is the page of the file as the
// file is now, only the host knows, before and after (host::page_source).
#pragma once

#include "penstock/engine/lend.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

struct lent_pages {
    std::uint32_t slot, generation;
};

// Whole group. Fills the page (fill_page) with the bytes of the file from `offset` on. False: the
// cache does not have them, or not clean, or pinned too often; nothing has changed then. A page of
// the cache is no smaller than a page of a region.
template <group Group>
PENSTOCK_HD bool fill_from_cache(const Group& g, const engine::cache_view& c,
                                 const lent_pages& lent, std::uint64_t offset, std::byte* replica,
                                 std::byte* base) {
    const engine::lend_order order{lent.slot, lent.generation, 0, 0, 0, nullptr, nullptr};
    const std::byte* from = nullptr;
    engine::page_word* pinned = nullptr;
    bool in_tier = false;
    if (g.is_leader())
        pinned = engine::pin_to_lend(g, c, order, offset >> c.page_shift, from, in_tier);
    from = reinterpret_cast<const std::byte*>(
        g.broadcast(pinned == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(from)));
    if (from == nullptr) return false;
    g.sync();  // the leader's acquire of the pin comes before every thread's reads of the frame
    fill_page(g, replica, base, from + (offset & (c.page_bytes() - 1)));
    if (g.is_leader()) engine::unpin(pinned);  // after every thread's reads: fill_page ends so
    return true;
}

}  // namespace penstock::region
