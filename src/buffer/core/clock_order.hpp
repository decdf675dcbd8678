// CLOCK over the host's frames, as the engine has it (docs/decisions/replacement.md): a hand goes
// round the frames, clears the use bits that it finds set, and takes the first block whose bit is
// clear. A block begins with its bit clear; a hit sets it where it is clear and writes nothing
// else.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/core/block_table.hpp"

namespace penstock::buffer {

class clock_order {
public:
    explicit clock_order(std::uint32_t frames = 0) : in_frame_(frames, nothing) {}

    void enter(block_table& blocks, std::uint32_t number) {
        blocks[number].used = false;
        in_frame_[blocks[number].frame] = number;
    }
    void leave(block_table&, std::uint32_t) {}
    void touch(block_table& blocks, std::uint32_t number) {
        if (!blocks[number].used) blocks[number].used = true;
    }
    // The hand asks of each block whether it may go, and passes a pinned one by.
    void hold(block_table&, std::uint32_t) {}
    void release(block_table&, std::uint32_t) {}

    // A block that may go is found within two rounds.
    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        for (std::uint64_t steps = 0; steps < 2 * std::uint64_t{in_frame_.size()}; ++steps) {
            const std::uint32_t number = in_frame_[hand_];
            hand_ = hand_ + 1 == in_frame_.size() ? 0 : hand_ + 1;
            if (!may_go(number)) continue;
            if (!blocks[number].used) return number;
            blocks[number].used = false;
        }
        return nothing;
    }

private:
    std::vector<std::uint32_t> in_frame_;
    std::uint32_t hand_ = 0;
};

}  // namespace penstock::buffer
