// The free frames of one side: a stack, with frame 0 on top at the start. What was freed last is
// taken first.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::buffer {

class frame_pool {
public:
    explicit frame_pool(std::uint32_t frames = 0) : size_(frames) {
        free_.reserve(frames);
        for (std::uint32_t frame = frames; frame-- > 0;) free_.push_back(frame);
    }

    [[nodiscard]] std::uint32_t size() const { return size_; }
    [[nodiscard]] bool full() const { return free_.empty(); }
    [[nodiscard]] std::uint32_t in_use() const {
        return static_cast<std::uint32_t>(size_ - free_.size());
    }

    std::uint32_t take() {
        const std::uint32_t frame = free_.back();
        free_.pop_back();
        return frame;
    }
    void give(std::uint32_t frame) { free_.push_back(frame); }

private:
    std::uint32_t size_;
    std::vector<std::uint32_t> free_;
};

}  // namespace penstock::buffer
