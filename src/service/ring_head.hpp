// The host's half of a ring's order: which ticket is next, and which service thread takes it.
//
// The head of a ring is the next ticket to serve. As a rule one service thread takes all requests
// of a ring; helpers (service/crew.hpp) take from every ring. The head goes up by compare-and-swap,
// so each ticket is taken by one thread. Order comes from `published`, which the same thread loaded
// before (acquire, pairs with post); the swap itself is relaxed. Only the thread that took a ticket
// reads its request: the slot does not change until that thread has answered it.
//
// A head that a thread loaded may be old when it looks at the slot. Tickets never repeat, so the
// slot then says another ticket, or the swap fails.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

// The host's view of one ring.
struct host_ring {
    engine::ring_request* requests = nullptr;
    engine::ring_reply* replies = nullptr;
    std::byte* staging = nullptr;
    std::uint64_t staging_stride = 0;
    std::uint32_t slots = 0;
    std::uint64_t* head = nullptr;  // shared by the threads that take from this ring
};

// Acquire: pairs with post; the request and the name in the staging area are there.
inline bool is_posted(const host_ring& ring, std::uint64_t ticket) {
    const std::uint64_t* const word = &ring.requests[ticket & (ring.slots - 1)].published;
    return atomic_load<order::acquire, scope::system>(word) == ticket + 1;
}

inline bool next_is_posted(const host_ring& ring) {
    return is_posted(ring, atomic_load<order::relaxed>(ring.head));
}

// False: there is no request. True: the caller serves this ticket, and no other thread does.
inline bool take_next(const host_ring& ring, std::uint64_t& ticket) {
    for (;;) {
        ticket = atomic_load<order::relaxed>(ring.head);
        if (!is_posted(ring, ticket)) return false;
        if (atomic_compare_swap<order::relaxed>(ring.head, ticket, ticket + 1)) return true;
    }
}

}  // namespace penstock::host
