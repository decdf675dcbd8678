// LRU: the page that was not used for longest goes. A hit moves the page to the front of a list.
#pragma once

#include "buffer/core/linked.hpp"
#include "fifo.hpp"

namespace penstock::bench::policy {

using buffer::linked;
using buffer::list_ends;

class lru {
public:
    lru(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames), links_(pages), resident_(pages) {}

    bool access(std::uint32_t page) {
        const bool hit = resident_[page] != 0;
        if (hit) {
            links_.remove(ends_, page);
        } else if (ends_.size == frames_) {
            const std::uint32_t victim = ends_.oldest;
            links_.remove(ends_, victim);
            resident_[victim] = 0;
        }
        links_.push_newest(ends_, page);
        resident_[page] = 1;
        return hit;
    }

private:
    std::uint32_t frames_;
    linked links_;
    list_ends ends_;
    std::vector<std::uint8_t> resident_;
};

}  // namespace penstock::bench::policy
