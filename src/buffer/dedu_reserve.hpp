// Room for a page is made while the disk reads it (dedu_state.hpp): of a file that is left in peace it does not depend on what the page holds. So who misses does not wait for others after the read: the batch that makes the
// room goes on meanwhile, and what is left is to copy the page's bytes to its frames.
//
// A reserved page is in the table, with frames in the host that have not got its bytes yet. Nobody may look there:
// (1) Its entry says `nowhere`, as before, and its owner is who reads it: so nobody reads it without asking, loads it, changes it or forgets it. A touch asks the entry, for it may have been on its way since the page was here before.
// (2) It is pinned in the core, so its blocks do not move, and it does not leave; they are alone, so no other page gets them.
// (3) It is clean, so nobody writes it back.
// arrive() makes it readable, by its owner and without a batch: its latch is closed until then, and its places were noted when the room was made.
//
// It stays pinned until its session asks for something again (settle()), and comes into the orders then, before what the session has used since: where it would be if it had been loaded. Whoever changes or forgets it before that
// settles it first.
// As many blocks as a page has are never pinned, and a page of the table neither, so that whoever brings a page has room, as if nothing was reserved.
#pragma once

#include <cstring>
#include <utility>

#include "buffer/dedu_batch.hpp"

namespace penstock::buffer {

// -EBUSY: there is no room for that, and the page is loaded when it has been read.
template <typename Order>
void dedu_state<Order>::reserve(dedu_request& one) {
    const auto& inside = core_.inside();
    one.code = -EBUSY;
    if (inside.pinned_blocks + 2 * how_.blocks_per_page > inside.host.size() || standing_ + 2 > inside.pages.limit() || inside.pages.find(one.id) != nothing) return;
    one.code = core_.load(one.id, contents_for(one), [&](const action& what) {
        if (what.what != move::fill) move_bytes(what, nullptr);
    });
    if (one.code != 0) return;
    core_.pin(one.id);
    one.slot = inside.pages.find(one.id);
    note_places(one.slot, one.id);
    reserved_[one.session] = {one.id, true};
    ++standing_;
    ++counts_.misses, ++counts_.loads;
}

// By the page's owner, who has its bytes.
template <typename Order>
void dedu_state<Order>::arrive(page_id id, std::uint32_t slot, const std::byte* bytes) {
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) std::memcpy(frame_at(host_places_[slot * how_.blocks_per_page + i]), bytes + i * shape_.frame_bytes, shape_.frame_bytes);
    latches_[slot].open();
    page(id).set_where(owned_entry::first_slot + slot);
}

// The page could not be read, and its latch was never opened.
template <typename Order>
void dedu_state<Order>::give_up(dedu_request& one) {
    published_[core_.inside().pages.find(one.id)] = false;
    core_.forget(one.id, [&](const action& what) { move_bytes(what, nullptr); });
    --counts_.misses, --counts_.loads;
}

template <typename Order>
void dedu_state<Order>::settle(reservation& one) {
    if (!std::exchange(one.stands, false)) return;
    core_.unpin(one.id);
    --standing_;
}

// Before it is changed or goes, by whoever owns it now.
template <typename Order>
void dedu_state<Order>::settle_page(page_id id) {
    if (standing_ == 0) return;
    for (reservation& one : reserved_)
        if (one.id == id) settle(one);
}

}  // namespace penstock::buffer
