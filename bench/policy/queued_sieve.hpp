// SIEVE over the frames of a sharded cache, without a list: each shard has two rings of frame
// numbers. What lies before the hand is in one, with new pages put at its end; what the hand has
// spared goes to the other, in order. When the first is empty they change places. With one shard it
// takes the same victims as sieve.hpp.
#pragma once

#include <utility>

#include "shards.hpp"

namespace penstock::bench::policy {

// A ring with room for every frame of a shard, so that it is never too small.
class frame_ring {
public:
    explicit frame_ring(std::uint32_t room) : places_(room) {}
    [[nodiscard]] bool empty() const { return size_ == 0; }
    void push(std::uint32_t frame) {
        const std::uint64_t end = std::uint64_t{first_} + size_++;
        places_[end < places_.size() ? end : end - places_.size()] = frame;
    }
    std::uint32_t pop() {
        const std::uint32_t frame = places_[first_];
        first_ = first_ + 1 == places_.size() ? 0 : first_ + 1;
        --size_;
        return frame;
    }

private:
    std::vector<std::uint32_t> places_;
    std::uint32_t first_ = 0, size_ = 0;
};

class queued_sieve {
public:
    queued_sieve(std::uint32_t frames, std::uint32_t pages, std::uint32_t shards = 1)
        : map_(frames, shards),
          shards_(shards, shard(frames / shards)),
          in_frame_(map_.frames(), nothing),
          used_(map_.frames()),
          frame_of_(pages, nothing) {}

    bool access(std::uint32_t page) {
        if (const std::uint32_t frame = frame_of_[page]; frame != nothing) {
            used_[frame] = 1;
            return true;
        }
        std::uint32_t frame = map_.fresh(page);
        if (frame == nothing) frame = evict(shards_[map_.shard_of(page)]);
        in_frame_[frame] = page;
        used_[frame] = 0;
        frame_of_[page] = frame;
        shards_[frame / map_.per_shard()].ahead.push(frame);
        return false;
    }

private:
    struct shard {
        explicit shard(std::uint32_t frames) : ahead(frames), spared(frames) {}
        frame_ring ahead, spared;
    };

    std::uint32_t evict(shard& in) {
        std::uint32_t frame = in.ahead.pop();
        while (used_[frame] != 0) {
            used_[frame] = 0;
            in.spared.push(frame);
            if (in.ahead.empty()) std::swap(in.ahead, in.spared);
            frame = in.ahead.pop();
        }
        // At once, and not when the next victim is looked for: the page that comes now lies before
        // the hand, behind the others.
        if (in.ahead.empty()) std::swap(in.ahead, in.spared);
        frame_of_[in_frame_[frame]] = nothing;
        return frame;
    }

    shard_map map_;
    std::vector<shard> shards_;
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> used_;
    std::vector<std::uint32_t> frame_of_;
};

}  // namespace penstock::bench::policy
