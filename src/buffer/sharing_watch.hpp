// Whether it pays to look for equal blocks in a file. Where hardly any are found the looking is only cost: then it is left out for a while, and tried again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::buffer {

// By one thread at a time.
class sharing_watch {
public:
    // `frames`: of the whole buffer. A block that nobody looked for is found by nobody, so after a rest, as at first, the buffer has to fill before what is found says anything.
    explicit sharing_watch(std::uint64_t frames) : window_(std::max(least_window, frames)) {}

    // While it rests no blocks are looked for; so many of them went by.
    [[nodiscard]] bool rests() const { return resting_ != 0; }
    void rested(std::uint32_t blocks) { resting_ -= std::min<std::uint64_t>(resting_, blocks); }
    void looked(std::uint32_t blocks, std::uint32_t found) {
        looked_ += blocks;
        if (looked_ > window_ / 2) found_ += found;
        if (looked_ < window_) return;
        resting_ = found_ * worth >= window_ / 2 ? 0 : rest_windows * window_;
        looked_ = found_ = 0;
    }

private:
    static constexpr std::uint64_t least_window = 1024;
    // Of the blocks in the second half of a window one in `worth` must have been there.
    static constexpr std::uint64_t worth = 50, rest_windows = 32;

    const std::uint64_t window_;
    std::uint64_t looked_ = 0, found_ = 0, resting_ = 0;
};

}  // namespace penstock::buffer
