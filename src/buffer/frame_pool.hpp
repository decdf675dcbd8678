// The frames of one side: which block lies in each. Free ones are a stack, with frame 0 on top at the start: what was freed last is taken first.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/linked.hpp"

namespace penstock::buffer {

class frame_pool {
public:
    explicit frame_pool(std::uint32_t frames = 0) : block_in_(frames, nothing) {
        free_.reserve(frames);
        for (std::uint32_t frame = frames; frame-- > 0;) free_.push_back(frame);
    }

    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(block_in_.size()); }
    [[nodiscard]] bool full() const { return free_.empty(); }
    [[nodiscard]] std::uint32_t in_use() const { return static_cast<std::uint32_t>(block_in_.size() - free_.size()); }

    std::uint32_t take() {
        const std::uint32_t frame = free_.back();
        free_.pop_back();
        return frame;
    }
    void give(std::uint32_t frame) {
        block_in_[frame] = nothing;
        free_.push_back(frame);
    }
    std::uint32_t& block_in(std::uint32_t frame) { return block_in_[frame]; }
    [[nodiscard]] std::uint32_t block_in(std::uint32_t frame) const { return block_in_[frame]; }

private:
    std::vector<std::uint32_t> block_in_, free_;
};

}  // namespace penstock::buffer
