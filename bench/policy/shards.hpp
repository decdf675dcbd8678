// How the engine spreads frames over shards: frames that were never used first, whatever their
// shard, then a victim of the shard that the page's number picks
// (include/penstock/engine/clock.hpp).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "fifo.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::bench::policy {

// As the runtime chooses it.
inline std::uint32_t engine_shards(std::uint32_t frames) {
    return std::clamp(std::bit_floor(frames / 256), 1u, 1024u);
}

class shard_map {
public:
    shard_map(std::uint32_t frames, std::uint32_t shards)
        : per_shard_(frames / shards), used_(shards) {}

    [[nodiscard]] std::uint32_t shards() const { return static_cast<std::uint32_t>(used_.size()); }
    [[nodiscard]] std::uint32_t per_shard() const { return per_shard_; }
    [[nodiscard]] std::uint32_t frames() const { return per_shard_ * shards(); }
    [[nodiscard]] std::uint32_t shard_of(std::uint32_t page) const {
        return static_cast<std::uint32_t>(mix64(page)) & (shards() - 1);
    }

    // A frame that was never used, or `nothing`.
    std::uint32_t fresh(std::uint32_t page) {
        for (std::uint32_t i = 0; !full_ && i < shards(); ++i) {
            const std::uint32_t shard = (shard_of(page) + i) & (shards() - 1);
            if (used_[shard] < per_shard_) return shard * per_shard_ + used_[shard]++;
        }
        full_ = true;
        return nothing;
    }

private:
    std::uint32_t per_shard_;
    std::vector<std::uint32_t> used_;
    bool full_ = false;
};

}  // namespace penstock::bench::policy
