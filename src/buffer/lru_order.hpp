// LRU over the host's frames, as in the paper: the block that was not used for longest goes.
//
// Every order has this shape; frames are numbers below a limit. An order is a template parameter of the core, for `touch` is called for every block
// of every hit. Between hold() and release() a frame is pinned and no victim; victim() is called only where some frame may go.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/linked.hpp"

namespace penstock::buffer {

class lru_order {
public:
    explicit lru_order(std::uint32_t frames = 0) : links_(frames), held_(frames) {}

    // A block has come to the frame, or has left it.
    void enter(std::uint32_t frame) { links_.push_newest(ends_, frame); }
    void leave(std::uint32_t frame) { links_.remove(ends_, frame); }

    void touch(std::uint32_t frame) {
        if (held_[frame] != 0 || ends_.newest == frame) return;
        leave(frame);
        enter(frame);
    }
    // A pinned frame stands in no list, so that searches need not pass it; it has been in use until it comes back.
    void hold(std::uint32_t frame) {
        leave(frame);
        held_[frame] = 1;
    }
    void release(std::uint32_t frame) {
        held_[frame] = 0;
        enter(frame);
    }

    // The first in order that may go.
    template <typename MayGo>
    std::uint32_t victim(const MayGo& may_go) {
        std::uint32_t at = ends_.oldest;
        while (at != nothing && !may_go(at)) at = links_.newer(at);
        return at;
    }

    // For the check: how many frames can be found, and whether this one is held.
    [[nodiscard]] std::uint32_t listed() const { return ends_.size; }
    [[nodiscard]] bool held(std::uint32_t frame) const { return held_[frame] != 0; }

private:
    linked links_;
    list_ends ends_;
    std::vector<std::uint8_t> held_;
};

}  // namespace penstock::buffer
