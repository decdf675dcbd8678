// Requests about a file that is written: to sync it, to cut it, to settle it after its last close.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/request.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::engine {

// Leader only. Posts the request and returns its result. `left`: the request, in the words of a
// frame lock, if the wait for its answer failed: the host may still carry it out. Else it stays as
// it was.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_or_leave(const Group& g, const cache_view& c,
                                                        const file_request& asked,
                                                        std::uint64_t& left) {
    ring_ticket at{};
    if (const std::int64_t code = claim_slot(g, c, true, at); code != 0) return code;
    post(g, c, at, asked.packed());
    if (const std::int64_t code = await(g, c, at); code != 0) {
        left = lock_request(at.ring, at.ticket);
        orphan_slot(c, at);
        return code;
    }
    const ring_view& r = c.rings[at.ring];
    const std::int64_t result = r.replies[slot_of(r, at.ticket)].result;
    recycle_slot(c, at);
    return result;
}

// The same for a request that may come late. `size_bytes` and `answers` are as in file_request, 0
// for other operations.
template <typename Group>
PENSTOCK_HD inline std::int64_t ask_about_generation(const Group& g, const cache_view& c,
                                                     op operation, std::uint32_t slot,
                                                     std::uint32_t generation,
                                                     std::uint64_t size_bytes,
                                                     std::uint64_t answers) {
    std::uint64_t left = 0;
    return ask_or_leave(g, c, {operation, slot, generation, size_bytes, answers}, left);
}

// The same for a file that is open.
template <typename Group>
PENSTOCK_HD inline std::int64_t ask_about_file(const Group& g, const cache_view& c, op operation,
                                               std::uint32_t slot, std::uint64_t size_bytes) {
    return ask_about_generation(g, c, operation, slot, c.file_records[slot].generation, size_bytes,
                                0);
}

}  // namespace penstock::engine
