// The order of the device's frames: a demoted block enters at the head, the tail goes when room is needed, and a block that is used leaves. It continues
// the host's order, which is why nothing is ever touched here.
#pragma once

#include <cstdint>

#include "buffer/linked.hpp"

namespace penstock::buffer {

class eviction_cache {
public:
    explicit eviction_cache(std::uint32_t frames = 0) : links_(frames) {}

    void enter(std::uint32_t frame) { links_.push_newest(ends_, frame); }
    void leave(std::uint32_t frame) { links_.remove(ends_, frame); }

    // The frame nearest to the tail that may go.
    template <typename MayGo>
    [[nodiscard]] std::uint32_t tail(const MayGo& may_go) const {
        std::uint32_t at = ends_.oldest;
        while (at != nothing && !may_go(at)) at = links_.newer(at);
        return at;
    }

    [[nodiscard]] std::uint32_t listed() const { return ends_.size; }

private:
    linked links_;
    list_ends ends_;
};

}  // namespace penstock::buffer
