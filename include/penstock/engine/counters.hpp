// Adds to the statistics: relaxed, without waiting, on the shard of the calling group. Only leaders
// count.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"
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

constexpr PENSTOCK_HD std::uint32_t latency_bucket(std::uint64_t ns) {
    std::uint32_t bucket = 0;
    while (ns > 1 && bucket + 1 < latency_buckets) {
        ns >>= 1;
        ++bucket;
    }
    return bucket;
}

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count_latency(const Group& g, const cache_view& c,
                                               std::uint64_t ns) {
    reduce_relaxed(&shard_of(g, c).latency[latency_bucket(ns)], 1);
}

}  // namespace penstock::engine
