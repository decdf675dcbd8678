// Tells when no reader goes by entries that were taken away: the host half of
// engine::neighbour_visits.
//
// A cycle has two stages. In the first the host waits until it has seen each shard's count of the
// round before at 0: only late readers are left there. Then it begins the next round, which sends
// new readers to those counts, and waits in the second stage until it has seen each of the others
// at 0. So both counts of each shard were 0 at some time after the cycle began, and a reader that
// went by an entry from before is gone. Nothing here waits; step() makes what progress there is.
//
// Not thread-safe. `Device` has upload() and sample() of cache_device; the explorer has its own.
#pragma once

#include <array>
#include <cstdint>

#include "penstock/engine/layout.hpp"

namespace penstock::host {

class cache_device;

template <typename Device = cache_device>
class visit_drain {
public:
    visit_drain(Device& device, engine::neighbour_visits* visits)
        : device_(device), visits_(visits) {}

    // For entries that were taken away just now: their readers are gone once cycles() is this.
    [[nodiscard]] std::uint64_t begin() {
        wanted_ = cycles_ + (is_under_way_ ? 2 : 1);
        return wanted_;
    }
    [[nodiscard]] std::uint64_t cycles() const { return cycles_; }
    [[nodiscard]] bool is_idle() const { return cycles_ >= wanted_; }

    void step() {
        if (is_idle()) return;
        if (!is_under_way_) {
            is_under_way_ = true;
            is_second_ = false;
            left_ = ~std::uint64_t{0};
        }
        look((round_ & 1) ^ 1);
        if (left_ != 0) return;
        if (!is_second_) {
            // The counts of the round before are the other ones now.
            const std::uint64_t next = round_ + 1;
            if (device_.upload(&visits_->round, &next, sizeof next) != 0) return;
            round_ = next;
            is_second_ = true;
            left_ = ~std::uint64_t{0};
            return look((round_ & 1) ^ 1);
        }
        is_under_way_ = false;
        ++cycles_;
    }

private:
    static_assert(engine::visit_shards == 64);  // a bit for each
    using shards = std::array<engine::visit_shard, engine::visit_shards>;
    static_assert(sizeof(shards) <= Device::most_sampled);

    void look(std::uint64_t which) {
        shards now;
        if (device_.sample(&now[0].inside[0], &visits_->shards[0].inside[0],
                           sizeof now / sizeof(std::uint64_t)) != 0)
            return;
        for (std::uint32_t shard = 0; shard < engine::visit_shards; ++shard)
            if (now[shard].inside[which] == 0) left_ &= ~(std::uint64_t{1} << shard);
    }

    Device& device_;
    engine::neighbour_visits* const visits_;
    std::uint64_t round_ = 0, cycles_ = 0, wanted_ = 0;
    std::uint64_t left_ = 0;  // shards whose count was not seen at 0 in this stage
    bool is_under_way_ = false, is_second_ = false;
};

}  // namespace penstock::host
