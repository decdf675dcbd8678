// Part of a warp as a group: tile<N> for N = 2, 4, 8, 16, 32 consecutive lanes; warp is tile<32>.
//
// Convergence: all N lanes call together with equal arguments. Blocks whose size is not a multiple
// of N have no last tile; do not call from it.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/group/device_copy.cuh"

namespace penstock {

template <std::uint32_t Lanes>
class tile {
    static_assert(Lanes >= 2 && Lanes <= 32 && (Lanes & (Lanes - 1)) == 0,
                  "a tile has 2, 4, 8, 16 or 32 lanes");

public:
    PENSTOCK_D PENSTOCK_INLINE tile()
        : rank_(detail::device_thread_in_block() % Lanes),
          mask_(Lanes == 32 ? 0xffffffffu
                            : ((1u << (Lanes % 32)) - 1u)
                                  << ((detail::device_thread_in_block() % 32u) & ~(Lanes - 1u))) {}

    PENSTOCK_D PENSTOCK_INLINE std::uint32_t size() const { return Lanes; }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t rank() const { return rank_; }
    PENSTOCK_D PENSTOCK_INLINE bool is_leader() const { return rank_ == 0; }
    PENSTOCK_D PENSTOCK_INLINE void sync() const { __syncwarp(mask_); }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t broadcast(std::uint64_t value) const {
        return __shfl_sync(mask_, static_cast<unsigned long long>(value), 0, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE bool all(bool flag) const { return __all_sync(mask_, flag) != 0; }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t home() const { return detail::device_warp_number(); }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t now_ns() const { return detail::device_now_ns(); }
    PENSTOCK_D PENSTOCK_INLINE void pause(std::uint32_t round) const {
        detail::device_pause(round);
    }
    PENSTOCK_D PENSTOCK_INLINE void wake(host_doorbell*) const {}
    static constexpr PENSTOCK_HD bool copies_race() { return true; }

    PENSTOCK_D PENSTOCK_INLINE void copy_out(std::byte* to, const std::byte* from,
                                             std::size_t bytes) const {
        detail::copy_from_frame(to, from, bytes, rank_, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_in(std::byte* to, const std::byte* from,
                                            std::size_t bytes) const {
        detail::copy_from_host(to, from, bytes, rank_, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE void zero(std::byte* to, std::size_t bytes) const {
        detail::zero_bytes(to, bytes, rank_, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_store(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        detail::copy_to_frame(to, from, bytes, rank_, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_written(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) const {
        detail::copy_from_frame(to, from, bytes, rank_, Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_frame(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        detail::copy_between_frames(to, from, bytes, rank_, Lanes);
    }

private:
    std::uint32_t rank_;
    std::uint32_t mask_;
};

using warp = tile<32>;

static_assert(group<warp> && group<tile<8>>);

PENSTOCK_D PENSTOCK_INLINE warp this_warp() { return {}; }

template <std::uint32_t Lanes>
PENSTOCK_D PENSTOCK_INLINE tile<Lanes> this_tile() {
    return {};
}

}  // namespace penstock
