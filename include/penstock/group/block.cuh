// A whole thread block as a group.
//
// Convergence: every thread of the block calls together with equal arguments; each call
// synchronises the block several times. Uses 8 bytes of static shared memory.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/group/device_copy.cuh"

namespace penstock {

class block {
public:
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t size() const {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t rank() const {
        return detail::device_thread_in_block();
    }
    PENSTOCK_D PENSTOCK_INLINE bool is_leader() const { return rank() == 0; }
    PENSTOCK_D PENSTOCK_INLINE void sync() const { __syncthreads(); }

    PENSTOCK_D PENSTOCK_INLINE std::uint64_t broadcast(std::uint64_t value) const {
        __shared__ unsigned long long word;
        __syncthreads();  // all threads have read the word of the last broadcast
        if (is_leader()) word = value;
        __syncthreads();  // the leader's value is there
        return word;
    }

    PENSTOCK_D PENSTOCK_INLINE bool all(bool flag) const { return __syncthreads_and(flag) != 0; }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t home() const {
        return detail::device_block_number() * 32u;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t now_ns() const { return detail::device_now_ns(); }
    PENSTOCK_D PENSTOCK_INLINE void pause(std::uint32_t round) const {
        detail::device_pause(round);
    }
    PENSTOCK_D PENSTOCK_INLINE void wake(host_doorbell*) const {}
    static constexpr PENSTOCK_HD bool copies_race() { return true; }

    PENSTOCK_D PENSTOCK_INLINE void copy_out(std::byte* to, const std::byte* from,
                                             std::size_t bytes) const {
        detail::copy_from_frame(to, from, bytes, rank(), size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_in(std::byte* to, const std::byte* from,
                                            std::size_t bytes) const {
        detail::copy_from_host(to, from, bytes, rank(), size());
    }
    PENSTOCK_D PENSTOCK_INLINE void zero(std::byte* to, std::size_t bytes) const {
        detail::zero_bytes(to, bytes, rank(), size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_store(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        detail::copy_to_frame(to, from, bytes, rank(), size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_written(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) const {
        detail::copy_from_frame(to, from, bytes, rank(), size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_frame(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        detail::copy_between_frames(to, from, bytes, rank(), size());
    }
};

static_assert(group<block>);

PENSTOCK_D PENSTOCK_INLINE block this_block() { return {}; }

}  // namespace penstock
