// Coalesced lanes as a group: the lanes of a warp that called together.
//
// Convergence: lanes that stay together make and use it. The lanes may differ from call to call,
// and every choice is right. Unlike a tile it needs no whole warp, so it serves calls that are made
// by lane.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/group/gpu_groups.cuh"

namespace penstock {

class coalesced : public detail::gpu_copies<coalesced> {
public:
    // `mask`: lanes of this warp that are together, the caller among them.
    PENSTOCK_D PENSTOCK_INLINE explicit coalesced(std::uint32_t mask) : mask_(mask) {}

    PENSTOCK_D PENSTOCK_INLINE std::uint32_t size() const {
        return static_cast<std::uint32_t>(__popc(mask_));
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t rank() const {
        return static_cast<std::uint32_t>(__popc(mask_ & ((1u << lane_number()) - 1u)));
    }
    PENSTOCK_D PENSTOCK_INLINE bool is_leader() const { return lane_number() == leader(); }
    PENSTOCK_D PENSTOCK_INLINE void sync() const { __syncwarp(mask_); }
    template <typename T>
    PENSTOCK_D PENSTOCK_INLINE T broadcast(T value) const {
        if constexpr (std::is_floating_point_v<T>)
            return __builtin_bit_cast(T, broadcast(__builtin_bit_cast(detail::shuffled<T>, value)));
        else return static_cast<T>(shuffle(static_cast<std::uint64_t>(value), leader()));
    }
    PENSTOCK_D PENSTOCK_INLINE bool all(bool flag) const { return __all_sync(mask_, flag) != 0; }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t home() const { return detail::device_warp_place(); }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t now_ns() const { return detail::device_now_ns(); }
    PENSTOCK_D PENSTOCK_INLINE void pause(std::uint32_t round) const {
        detail::device_pause(round);
    }
    PENSTOCK_D PENSTOCK_INLINE void wake(host_doorbell*) const {}
    static constexpr PENSTOCK_HD bool copies_race() { return true; }

    // Only this group has these: its lanes, by their numbers in the warp.
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t lane_number() const {
        return detail::device_thread_in_block() % 32u;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t ballot(bool flag) const {
        return __ballot_sync(mask_, flag);
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t match(std::uint64_t value) const {
        return __match_any_sync(mask_, static_cast<unsigned long long>(value));
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t shuffle(std::uint64_t value,
                                                     std::uint32_t from_lane) const {
        return __shfl_sync(mask_, static_cast<unsigned long long>(value),
                           static_cast<int>(from_lane));
    }

private:
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t leader() const {
        return static_cast<std::uint32_t>(__ffs(static_cast<int>(mask_))) - 1u;
    }
    std::uint32_t mask_;
};

static_assert(group<coalesced>);

}  // namespace penstock
