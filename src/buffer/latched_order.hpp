// An order whose victim is a frame that nobody uses: it is closed when it is found, so that nobody comes to use it. Whoever drives the core sees to it that there always is one.
#pragma once

#include <cstdint>
#include <functional>

#include "buffer/linked.hpp"

namespace penstock::buffer {

template <typename Order>
class latched_order : public Order {
public:
    using Order::Order;

    // `idle`: nobody uses the frame just now. `close`: closes it, unless somebody came to use it.
    void close_by(std::function<bool(std::uint32_t)> idle, std::function<bool(std::uint32_t)> close) {
        idle_ = std::move(idle);
        close_ = std::move(close);
    }

    template <typename MayGo>
    std::uint32_t victim(const MayGo& may_go) {
        for (;;) {
            // CLOCK gives up after two rounds, in which others may have come and gone wherever its hand was.
            const std::uint32_t out = Order::victim([&](std::uint32_t frame) { return may_go(frame) && idle_(frame); });
            if (out != nothing && close_(out)) return out;
        }
    }

private:
    std::function<bool(std::uint32_t)> idle_, close_;
};

}  // namespace penstock::buffer
