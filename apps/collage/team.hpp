// A group that works on one block of the picture, and the members it is made of: the warps of a
// thread block, that thread block as one member, or the one lane of a CPU thread. Collectives
// inside a member do not hold up the others.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/group/lane.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock::collage {

template <typename Group>
struct team;

template <>
struct team<lane> {
    using member = lane;
    static constexpr std::uint32_t most_members = 1;
    static PENSTOCK_HD std::uint32_t members() { return 1; }
    static PENSTOCK_HD std::uint32_t number() { return 0; }
    static PENSTOCK_HD std::uint32_t sum(const lane&, std::uint32_t value) { return value; }
};

#if defined(__CUDACC__)
template <>
struct team<block> {
    using member = warp;
    static constexpr std::uint32_t most_members = 16;
    static PENSTOCK_D std::uint32_t members() { return blockDim.x / 32; }
    static PENSTOCK_D std::uint32_t number() { return threadIdx.x / 32; }
    // In the leader of the member; in others, anything.
    static PENSTOCK_D std::uint32_t sum(const warp&, std::uint32_t value) {
        for (int step = 16; step > 0; step /= 2)
            value += __shfl_down_sync(0xffffffffu, value, step);
        return value;
    }
};

// A thread block whose warps read every record together, as kernels of the original GPUfs do.
struct whole_block : block {};
template <>
struct team<whole_block> {
    using member = block;
    static constexpr std::uint32_t most_members = 1;
    static PENSTOCK_D std::uint32_t members() { return 1; }
    static PENSTOCK_D std::uint32_t number() { return 0; }
    static PENSTOCK_D std::uint32_t sum(const block& b, std::uint32_t value) {
        __shared__ std::uint32_t word;
        b.sync();  // the leader has read the word of the last sum
        if (b.is_leader()) word = 0;
        b.sync();
        const std::uint32_t of_warp = __reduce_add_sync(0xffffffffu, value);
        if (b.rank() % 32 == 0) ::atomicAdd(&word, of_warp);
        b.sync();
        return word;
    }
};
#endif

// Changes to words that the members share, in a block's shared memory. A lane shares with no other
// thread: it need not pay.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t add_shared([[maybe_unused]] const Group& g,
                                                     std::uint32_t* word, std::uint32_t value) {
#if PENSTOCK_ON_DEVICE
    if (g.size() != 1) return ::atomicAdd(word, value);
#endif
    const std::uint32_t before = *word;
    *word = before + value;
    return before;
}

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void min_shared(const Group& g, std::uint64_t* word,
                                            std::uint64_t value) {
    if (g.size() == 1) {
        if (value < *word) *word = value;
        return;
    }
#if PENSTOCK_ON_DEVICE
    ::atomicMin(reinterpret_cast<unsigned long long*>(word),
                static_cast<unsigned long long>(value));
#endif
}

// True if this call changed the word from `expected`.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool swap_shared([[maybe_unused]] const Group& g, std::uint32_t* word,
                                             std::uint32_t expected, std::uint32_t desired) {
#if PENSTOCK_ON_DEVICE
    if (g.size() != 1) return ::atomicCAS(word, expected, desired) == expected;
#endif
    if (*word != expected) return false;
    *word = desired;
    return true;
}

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t load_shared(const Group& g, const std::uint32_t* word) {
    return g.size() != 1 ? atomic_load<order::relaxed>(word) : *word;
}

}  // namespace penstock::collage
