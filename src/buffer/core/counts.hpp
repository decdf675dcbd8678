// A sink that counts what moves, and nothing else.
#pragma once

#include <cstdint>

#include "buffer/core/types.hpp"

namespace penstock::buffer {

// In blocks, but for the pages that are written back or dropped.
struct counts {
    std::uint64_t filled = 0, demoted = 0, promoted = 0, vanished = 0;
    std::uint64_t written_pages = 0, written_from_device = 0, dropped_pages = 0;

    void operator()(const action& what) {
        switch (what.what) {
            case move::fill: ++filled; break;
            case move::demote: ++demoted; break;
            case move::promote: ++promoted; break;
            case move::exchange: ++demoted, ++promoted; break;
            case move::write_back:
                written_pages += what.place == 0;
                written_from_device += what.device != nothing;
                break;
            case move::drop: ++dropped_pages; break;
            case move::vanish: ++vanished; break;
        }
    }
    // Blocks over the bus, to the device and from it.
    [[nodiscard]] std::uint64_t to_device() const { return demoted; }
    [[nodiscard]] std::uint64_t from_device() const { return promoted + written_from_device; }
};

}  // namespace penstock::buffer
