// Finds which bytes of a piece of a frame differ from those of another frame, with a bit for each
// byte. Called by one thread. Other threads may write to both frames meanwhile, so every access is
// relaxed, and a byte that is being written may count as either.
#pragma once

#include "penstock/base/atomic.hpp"
#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock {

namespace detail {

// Bit k: byte k of the word is not zero.
constexpr PENSTOCK_HD std::uint64_t nonzero_bytes(std::uint64_t word) {
    constexpr std::uint64_t low = 0x7f7f7f7f7f7f7f7full;
    const std::uint64_t high = ((((word & low) + low) | word) & ~low) >>
                               7;  // the lowest bit of each byte that is not zero
    return high * 0x0102040810204080ull >> 56;
}

#if defined(__CUDACC__)
PENSTOCK_D PENSTOCK_INLINE std::uint64_t nonzero_bytes_of(uint4 v) {
    return nonzero_bytes(std::uint64_t{v.y} << 32 | v.x) |
           nonzero_bytes(std::uint64_t{v.w} << 32 | v.z) << 8;
}
#endif

}  // namespace detail

// `bytes` is 64, or less in tests with small pages, and a multiple of 16; both are 16-byte aligned.
// `before` null: zeros.
PENSTOCK_HD inline std::uint64_t changed_bytes(const std::byte* now, const std::byte* before,
                                               std::uint32_t bytes) {
    std::uint64_t out = 0;
#if PENSTOCK_ON_DEVICE
#pragma unroll 4
    for (std::uint32_t i = 0; i < bytes; i += 16) {
        uint4 v = detail::load_frame_16(now + i);
        if (before != nullptr) {
            const uint4 w = detail::load_frame_16(before + i);
            v.x ^= w.x, v.y ^= w.y, v.z ^= w.z, v.w ^= w.w;
        }
        out |= detail::nonzero_bytes_of(v) << i;
    }
#else
    for (std::uint32_t i = 0; i < bytes; i += 8) {
        std::uint64_t v =
            atomic_load<order::relaxed>(reinterpret_cast<const std::uint64_t*>(now + i));
        if (before != nullptr)
            v ^= atomic_load<order::relaxed>(reinterpret_cast<const std::uint64_t*>(before + i));
        if (v != 0) out |= detail::nonzero_bytes(v) << i;
    }
#endif
    return out;
}

}  // namespace penstock
