// Room for a page is made while the disk reads it (dedu_state.hpp): of a file that is left in peace it does not depend on what the page holds, and takes as long as some of the read.
//
// A reserved page is in the table, with frames in the host that have not got its bytes yet. Nobody may look there:
// (1) Its entry says `nowhere`, as before, and its owner is who reads it: so nobody reads it without asking, loads it, changes it or forgets it. A touch asks the entry, for it may have been on its way since the page was here before.
// (2) It is pinned in the core, so its blocks do not move, and it does not leave; they are alone, so no other page gets them.
// (3) It is clean, so nobody writes it back.
// As many blocks as a page has are never pinned, so that whoever brings a page has room, as if nothing was reserved.
#pragma once

#include "buffer/dedu_batch.hpp"

namespace penstock::buffer {

// -EBUSY: there is no room for that, and the page is loaded when it has been read.
template <typename Order>
void dedu_state<Order>::reserve(dedu_request& one) {
    const auto& inside = core_.inside();
    one.code = -EBUSY;
    if (inside.pinned_blocks + 2 * how_.blocks_per_page > inside.host.size() || inside.pages.find(one.id) != nothing) return;
    one.code = core_.load(one.id, contents_for(one), [&](const action& what) {
        if (what.what != move::fill) move_bytes(what, nullptr);
    });
    if (one.code == 0) core_.pin(one.id);
}

// In the orders it comes in at this moment, as a page that is loaded does.
template <typename Order>
void dedu_state<Order>::arrive(dedu_request& one) {
    core_.unpin(one.id);
    if (!one.has_arrived) {
        core_.forget(one.id, [&](const action& what) { move_bytes(what, nullptr); });
        one.code = -EIO;
        return;
    }
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) note(wave_.fill(core_.block_of(one.id, i)->frame, one.bytes + i * shape_.frame_bytes));
    ++counts_.misses, ++counts_.loads;
    page(one.id).set_where(owned_entry::elsewhere);
}

}  // namespace penstock::buffer
