// LRU over the host's blocks, as in the paper: the block that was not used for longest goes.
//
// Every order has this shape. It is a template parameter of the core and no virtual call, for
// `touch` is called for every block of every hit. Between hold() and release() a block is pinned
// and no victim; victim() is called only where every frame has a block and one of them may go.
#pragma once

#include <cstdint>

#include "buffer/core/block_table.hpp"

namespace penstock::buffer {

class lru_order {
public:
    explicit lru_order(std::uint32_t = 0) {}

    // The block has come to its frame in the host, or leaves it.
    void enter(block_table& blocks, std::uint32_t number) {
        push_newest(ends_, number, blocks.order());
    }
    void leave(block_table& blocks, std::uint32_t number) {
        take_out(ends_, number, blocks.order());
    }

    void touch(block_table& blocks, std::uint32_t number) {
        if (blocks[number].pins != 0 || ends_.newest == number) return;
        leave(blocks, number);
        enter(blocks, number);
    }
    // A pinned block stands in no list, so that searches need not pass it; it has been in use until
    // it comes back.
    void hold(block_table& blocks, std::uint32_t number) { leave(blocks, number); }
    void release(block_table& blocks, std::uint32_t number) { enter(blocks, number); }

    // The first in order that may go.
    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        std::uint32_t at = ends_.oldest;
        while (at != nothing && !may_go(at)) at = blocks[at].order.newer;
        return at;
    }

    // The block that was not used for longest, whether it may go or not.
    [[nodiscard]] std::uint32_t oldest() const { return ends_.oldest; }
    // For the check: how many blocks can be found.
    [[nodiscard]] std::uint32_t listed() const { return ends_.size; }

private:
    list_ends ends_;
};

}  // namespace penstock::buffer
