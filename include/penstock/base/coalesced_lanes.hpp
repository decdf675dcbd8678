// Lanes of a warp that are about to do the same to one word, so that one of them can do it for all.
//
// A compare-and-swap on a word that thousands try for succeeds about once in the time that a look
// and a swap take. 32 lanes that each take a reference would need 32 such times, one that takes 32
// references needs one.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

namespace penstock {

// Those lanes of this warp that are here right now with the same `key`, a number or an address; a
// CPU thread is alone. Lanes that are elsewhere are not waited for, and any choice of lanes is
// right. What all of them did before comes before what the one does, and that before what they do
// after share().
class coalesced_lanes {
public:
    PENSTOCK_HD PENSTOCK_INLINE explicit coalesced_lanes([[maybe_unused]] std::uint64_t key) {
#if PENSTOCK_ON_DEVICE
        keep(__match_any_sync(__activemask(), static_cast<unsigned long long>(key)));
        __syncwarp(lanes_);
#endif
    }
    // Of these, those with the same `key`.
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE coalesced_lanes
    those_with([[maybe_unused]] std::uint64_t key) const {
        coalesced_lanes out = *this;
#if PENSTOCK_ON_DEVICE
        out.keep(__match_any_sync(lanes_, static_cast<unsigned long long>(key)));
#endif
        return out;
    }
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE std::uint32_t size() const {
#if PENSTOCK_ON_DEVICE
        return static_cast<std::uint32_t>(__popc(lanes_));
#else
        return 1;
#endif
    }
    // True in one of them, which acts for all.
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE bool acts() const { return rank_ == 0; }
    // All of them, after the one has acted: true in as many as it says there are to be.
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE bool share(std::uint32_t winners) const {
#if PENSTOCK_ON_DEVICE
        winners = __shfl_sync(lanes_, winners, __ffs(static_cast<int>(lanes_)) - 1);
        __syncwarp(lanes_);
#endif
        return rank_ < winners;
    }

private:
#if PENSTOCK_ON_DEVICE
    PENSTOCK_D PENSTOCK_INLINE void keep(std::uint32_t lanes) {
        lanes_ = lanes;
        std::uint32_t before = 0;
        asm("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
        rank_ = static_cast<std::uint32_t>(__popc(lanes_ & before));
    }
    std::uint32_t lanes_ = 0;
#endif
    std::uint32_t rank_ = 0;
};

}  // namespace penstock
