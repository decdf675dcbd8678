// An order whose victim is a block in a frame that no thread uses: that is closed when it is found,
// so that no thread comes to use it. The thread that drives the core sees to it that there always
// is one.
#pragma once

#include <cstdint>
#include <functional>

#include "buffer/core/tables.hpp"

namespace penstock::buffer {

template <typename Order>
class latched_order : public Order {
public:
    using Order::Order;

    // `idle`: no thread uses the frame just now. `close`: closes it, unless another thread came to
    // use it.
    void close_by(std::function<bool(std::uint32_t)> idle,
                  std::function<bool(std::uint32_t)> close) {
        idle_ = std::move(idle);
        close_ = std::move(close);
    }

    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        for (;;) {
            // CLOCK gives up after two rounds, in which others may have come and gone wherever its
            // hand was.
            const std::uint32_t out = Order::victim(blocks, [&](std::uint32_t number) {
                return may_go(number) && idle_(blocks[number].frame);
            });
            if (out != nothing && close_(blocks[out].frame)) return out;
        }
    }

private:
    std::function<bool(std::uint32_t)> idle_, close_;
};

}  // namespace penstock::buffer
