// The order of the device's blocks: a demoted one enters at the head, the tail goes when room is
// needed, and a block that is used leaves. It continues the host's order, which is why nothing is
// ever touched here.
#pragma once

#include <cstdint>

#include "buffer/core/block_table.hpp"

namespace penstock::buffer {

class eviction_cache {
public:
    void enter(block_table& blocks, std::uint32_t number) {
        push_newest(ends_, number, blocks.order());
    }
    void leave(block_table& blocks, std::uint32_t number) {
        take_out(ends_, number, blocks.order());
    }

    // The block nearest to the tail that may go.
    template <typename MayGo>
    [[nodiscard]] std::uint32_t tail(const block_table& blocks, const MayGo& may_go) const {
        std::uint32_t at = ends_.oldest;
        while (at != nothing && !may_go(at)) at = blocks[at].order.newer;
        return at;
    }

    // The tail, whether it may go or not.
    [[nodiscard]] std::uint32_t oldest() const { return ends_.oldest; }
    [[nodiscard]] std::uint32_t listed() const { return ends_.size; }

private:
    list_ends ends_;
};

}  // namespace penstock::buffer
