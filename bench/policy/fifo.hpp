// FIFO: the page that was loaded first goes first. A hit changes nothing.
//
// Every policy here has the same shape: made for so many frames and pages, access(page) says
// whether it was a hit and, if not, loads the page in place of a victim.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::bench::policy {

inline constexpr std::uint32_t nothing = ~std::uint32_t{0};

class fifo {
public:
    fifo(std::uint32_t frames, std::uint32_t pages)
        : in_frame_(frames, nothing), resident_(pages) {}

    bool access(std::uint32_t page) {
        if (resident_[page] != 0) return true;
        const std::uint32_t victim = in_frame_[next_];
        if (victim != nothing) resident_[victim] = 0;
        in_frame_[next_] = page;
        resident_[page] = 1;
        next_ = next_ + 1 == in_frame_.size() ? 0 : next_ + 1;
        return false;
    }

private:
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> resident_;
    std::uint32_t next_ = 0;
};

}  // namespace penstock::bench::policy
