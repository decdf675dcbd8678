// What groups leave for the host besides their results: the statistics, and the first error that a
// call could not report in full.
//
// Statistics are added to relaxed, without waiting, on the shard of the calling group. Only leaders
// count.
//
// An element view returns a value and has no room for an error, and a gather has room for the error
// but not for the row: these note a fault. The fault record lies in device memory. A group moves
// `claimed` from 0 to 1 by compare-and-swap, then writes the rest, `code` last. The host reads the
// record between kernels and sets it back to zero. Later errors are counted but not kept.
#pragma once

#include "penstock/base/hash.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/file_word.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE counter_shard& shard_of(const Group& g, const cache_view& c) {
    return c.counters[g.home() & (c.counter_shards - 1)];
}

// Called by the leader only. If the group does several things at once, one thread calls it for
// each.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count(const Group& g, const cache_view& c, counter kind,
                                       std::uint64_t amount = 1) {
    reduce_relaxed(&shard_of(g, c).count[kind], amount);
}

// The exponent of the largest power of two that is not above `ns`; 0 for 0.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t latency_bucket(std::uint64_t ns) {
#if PENSTOCK_ON_DEVICE
    const auto bucket = static_cast<std::uint32_t>(63 - __clzll(static_cast<long long>(ns | 1)));
#else
    const auto bucket = static_cast<std::uint32_t>(std::bit_width(ns | 1) - 1);
#endif
    return bucket < latency_buckets ? bucket : latency_buckets - 1;
}

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count_latency(const Group& g, const cache_view& c,
                                               std::uint64_t ns) {
    reduce_relaxed(&shard_of(g, c).latency[latency_bucket(ns)], 1);
}

// For a message: where element `number` would be that lies behind all that there are; the last byte
// that any file may have if it would be behind that.
PENSTOCK_HD inline std::uint64_t byte_of_outside(std::uint64_t first, std::uint64_t number,
                                                 std::uint64_t element_bytes) {
    const bool fits = first <= INT64_MAX && number <= (INT64_MAX - first) / element_bytes;
    return fits ? first + number * element_bytes : INT64_MAX;
}

// Leader only. `offset`: the byte of the file that the caller wanted.
PENSTOCK_HD inline void note_fault(const cache_view& c, std::int64_t code, std::uint32_t slot,
                                   std::uint32_t generation, std::uint64_t offset) {
    if (c.fault == nullptr || !try_lock(&c.fault->claimed)) return;
    c.fault->slot = slot;
    c.fault->generation = generation;
    c.fault->offset = offset;
    c.fault->code = code;
}

// Leader only. The same for row `row`, which begins at byte `offset`.
PENSTOCK_HD inline void note_row_fault(const cache_view& c, std::int64_t code, std::uint32_t slot,
                                       std::uint32_t generation, std::uint64_t offset,
                                       std::uint64_t row) {
    if (c.fault == nullptr || !try_lock(&c.fault->claimed)) return;
    c.fault->slot = slot;
    c.fault->generation = generation;
    c.fault->offset = offset;
    c.fault->row = row;
    c.fault->is_row = 1;
    c.fault->code = code;
}

}  // namespace penstock::engine
