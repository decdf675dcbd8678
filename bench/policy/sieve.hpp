// SIEVE (Zhang and others, NSDI 2024): pages in the order in which they were loaded, a hand that
// goes from the oldest to the newest, clears the use bits that it finds set, and takes the first
// page whose bit is clear. A page that the hand spares stays where it is, and a new one is put at
// the newest end, so the hand comes to new pages soon and to proven ones late. A hit sets one bit.
#pragma once

#include "buffer/core/linked.hpp"
#include "fifo.hpp"

namespace penstock::bench::policy {

using buffer::linked;
using buffer::list_ends;

class sieve {
public:
    sieve(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames), links_(pages), resident_(pages), used_(pages) {}

    bool access(std::uint32_t page) {
        if (resident_[page] != 0) {
            used_[page] = 1;
            return true;
        }
        if (ends_.size == frames_) evict();
        links_.push_newest(ends_, page);
        resident_[page] = 1;
        used_[page] = 0;
        return false;
    }

private:
    void evict() {
        std::uint32_t at = hand_ == nothing ? ends_.oldest : hand_;
        while (used_[at] != 0) {
            used_[at] = 0;
            at = links_.newer(at) == nothing ? ends_.oldest : links_.newer(at);
        }
        hand_ = links_.newer(at);
        links_.remove(ends_, at);
        resident_[at] = 0;
    }

    std::uint32_t frames_;
    linked links_;
    list_ends ends_;
    std::uint32_t hand_ = nothing;
    std::vector<std::uint8_t> resident_, used_;
};

}  // namespace penstock::bench::policy
