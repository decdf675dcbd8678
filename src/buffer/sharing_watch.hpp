// Whether it pays to look for equal blocks in a file. Where hardly any are found, or all that were found went again before anybody came for them, the looking is only cost: then it is left out for a while, and tried again.
#pragma once

#include <cstdint>

namespace penstock::buffer {

// Under the manager's lock.
class sharing_watch {
public:
    // Of so many blocks of the file that were looked for, one in `worth` must have been there.
    static constexpr std::uint32_t window = 1024, probe = 256, worth = 50;
    static constexpr std::uint32_t rest_windows = 32;

    // While it rests no blocks are looked for; so many of them went by.
    [[nodiscard]] bool rests() const { return resting_ != 0; }
    void rested(std::uint32_t blocks) { resting_ -= resting_ < blocks ? resting_ : blocks; }
    void looked(std::uint32_t blocks, std::uint32_t found) {
        looked_ += blocks;
        found_ += found;
        if (looked_ < wanted_) return;
        const bool pays = std::uint64_t{found_} * worth >= looked_;
        resting_ = pays ? 0 : rest_windows * window;
        wanted_ = pays ? window : probe;
        looked_ = found_ = 0;
    }

private:
    std::uint32_t looked_ = 0, found_ = 0, wanted_ = window, resting_ = 0;
};

}  // namespace penstock::buffer
