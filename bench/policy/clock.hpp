// CLOCK with one use bit, as the engine has it: a hand for each shard passes over frames whose bit
// is set, clearing it, and takes the first that is clear; the new page lies in the victim's place,
// just behind the hand. A hit sets the bit where it is clear.
#pragma once

#include "shards.hpp"

namespace penstock::bench::policy {

// Whether a page that was just loaded counts as used. In the engine it does not.
enum class at_load { used, unused };

class clock {
public:
    clock(std::uint32_t frames, std::uint32_t pages, std::uint32_t shards = 1,
          at_load bit = at_load::unused)
        : map_(frames, shards),
          bit_(bit == at_load::used),
          hands_(shards),
          in_frame_(map_.frames(), nothing),
          used_(map_.frames()),
          frame_of_(pages, nothing) {}

    bool access(std::uint32_t page) {
        if (const std::uint32_t frame = frame_of_[page]; frame != nothing) {
            used_[frame] = 1;
            return true;
        }
        std::uint32_t frame = map_.fresh(page);
        if (frame == nothing) frame = evict(map_.shard_of(page));
        in_frame_[frame] = page;
        used_[frame] = bit_;
        frame_of_[page] = frame;
        return false;
    }

private:
    std::uint32_t evict(std::uint32_t shard) {
        for (;;) {
            const std::uint32_t frame = shard * map_.per_shard() + hands_[shard];
            hands_[shard] = hands_[shard] + 1 == map_.per_shard() ? 0 : hands_[shard] + 1;
            if (used_[frame] != 0) {
                used_[frame] = 0;
                continue;
            }
            frame_of_[in_frame_[frame]] = nothing;
            return frame;
        }
    }

    shard_map map_;
    std::uint8_t bit_;
    std::vector<std::uint32_t> hands_;
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> used_;
    std::vector<std::uint32_t> frame_of_;
};

}  // namespace penstock::bench::policy
