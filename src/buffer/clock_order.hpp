// CLOCK over the host's frames, as the engine has it (docs/replacement.md): a hand goes round the frames, clears the use bits that it finds set, and
// takes the first frame whose bit is clear. A block begins with its bit clear; a hit sets it where it is clear and writes nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/linked.hpp"

namespace penstock::buffer {

class clock_order {
public:
    explicit clock_order(std::uint32_t frames = 0) : used_(frames) {}

    void enter(std::uint32_t frame) { used_[frame] = 0; }
    void leave(std::uint32_t) {}
    void touch(std::uint32_t frame) {
        if (used_[frame] == 0) used_[frame] = 1;
    }
    // The hand asks for each frame whether it may go, and passes a pinned one by.
    void hold(std::uint32_t) {}
    void release(std::uint32_t) {}

    // Called only when every frame has a block. A frame that may go is found within two rounds.
    template <typename MayGo>
    std::uint32_t victim(const MayGo& may_go) {
        for (std::uint64_t steps = 0; steps < 2 * std::uint64_t{used_.size()}; ++steps) {
            const std::uint32_t frame = hand_;
            hand_ = hand_ + 1 == used_.size() ? 0 : hand_ + 1;
            if (!may_go(frame)) continue;
            if (used_[frame] == 0) return frame;
            used_[frame] = 0;
        }
        return nothing;
    }

private:
    std::vector<std::uint8_t> used_;
    std::uint32_t hand_ = 0;
};

}  // namespace penstock::buffer
