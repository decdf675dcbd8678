// The groups of a GPU, part of a warp (tile; warp is the tile of 32 lanes) and a whole thread block
// (block), and the copies that all groups of a GPU share. The copies are written once for every
// width: thread `rank` of `size` threads takes part.
//
// Convergence
//   tile<N>  N = 2, 4, 8, 16 or 32 consecutive lanes: all of them call together with equal
//            arguments. A block whose size is not a multiple of N has no last tile; do not call
//            from it.
//   block    every thread of the block calls together with equal arguments; each call synchronises
//            the block several times. Uses up to 64 bytes of static shared memory, 8 for each type
//            of number that it tells.
// group/coalesced.cuh has the group of lanes that happen to be together.
//
// Frames are read with relaxed device-scope loads. These loads go to the second-level cache, where
// the stores of other multiprocessors arrive. So a copy that races with an eviction reads old or
// new words and never a stale first-level line, and the check after the copy rejects it
// (engine/page_word.hpp). Frames are written with relaxed device-scope stores, because a plain
// store that meets such a load is a data race, for which PTX promises nothing.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/group/concept.hpp"

namespace penstock {

namespace detail {

PENSTOCK_D PENSTOCK_INLINE std::uint64_t device_now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// Pauses longer each time, up to 32 us, so a group notices the end of a wait late by about a third
// of its length. Groups that wait for the host look over the bus, and thousands of groups that look
// every two microseconds use the whole bus: then the fences of all other threads took a millisecond
// (bench/results/h200/2026-11-21-ring.txt).
PENSTOCK_D PENSTOCK_INLINE void device_pause(std::uint32_t round) {
    const std::uint32_t doublings = round < 4 ? round : 4 + (round - 4) / 2;
    __nanosleep(32u << (doublings < 10 ? doublings : 10));
}

PENSTOCK_D PENSTOCK_INLINE std::uint32_t device_block_number() {
    return blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
}

PENSTOCK_D PENSTOCK_INLINE std::uint32_t device_thread_in_block() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

// A number that the warps on a GPU at one time seldom share: of the multiprocessor, and the warp's
// place on it. Made of two registers, for a miss asks for it at each count.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t device_warp_place() {
    constexpr std::uint32_t multiprocessors = 160;  // about as many as the largest GPUs have
    std::uint32_t multiprocessor, place;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(place));
    return place * multiprocessors + multiprocessor;
}

// How a value of one thread goes to others: in one register, or in two.
template <typename T>
using shuffled = std::conditional_t<sizeof(T) <= 4, unsigned, unsigned long long>;

PENSTOCK_D PENSTOCK_INLINE uint4 load_frame_16(const std::byte* from) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

// Loads sixteen bytes of which neither half is torn, so that no element of up to 8 bytes is torn.
PENSTOCK_D PENSTOCK_INLINE ulonglong2 load_frame_2x8(const std::byte* from) {
    ulonglong2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(from));
    return v;
}

PENSTOCK_D PENSTOCK_INLINE std::uint32_t load_frame_4(const std::byte* from) {
    std::uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

PENSTOCK_D PENSTOCK_INLINE std::byte load_frame_1(const std::byte* from) {
    std::uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(v) : "l"(from));
    return static_cast<std::byte>(v);
}

// Host memory is read at system scope: the service thread reuses the same staging bytes for other
// requests.
PENSTOCK_D PENSTOCK_INLINE uint4 load_host_16(const std::byte* from) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

PENSTOCK_D PENSTOCK_INLINE std::uint32_t load_host_4(const std::byte* from) {
    std::uint32_t v;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

PENSTOCK_D PENSTOCK_INLINE std::byte load_host_1(const std::byte* from) {
    std::uint32_t v;
    asm volatile("ld.relaxed.sys.global.u8 %0, [%1];" : "=r"(v) : "l"(from));
    return static_cast<std::byte>(v);
}

PENSTOCK_D PENSTOCK_INLINE void store_frame_16(std::byte* to, uint4 v) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

PENSTOCK_D PENSTOCK_INLINE void store_frame_4(std::byte* to, std::uint32_t v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

PENSTOCK_D PENSTOCK_INLINE void store_frame_1(std::byte* to, std::uint32_t v) {
    asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

PENSTOCK_D PENSTOCK_INLINE void store_plain_16(std::byte* to, uint4 v) {
    *reinterpret_cast<uint4*>(to) = v;
}

template <uint4 (*Load)(const std::byte*), void (*Store)(std::byte*, uint4), int Longest = 4>
PENSTOCK_D PENSTOCK_INLINE void copy_aligned_16(std::byte* to, const std::byte* from,
                                                std::size_t bytes, std::uint32_t rank,
                                                std::uint32_t size) {
    // Four loads in flight per thread before the first store, or eight: the latency of the
    // second-level cache or of the bus is paid once for all of them.
    const std::size_t stride = std::size_t{size} * 16;
    std::size_t i = std::size_t{rank} * 16;
    if constexpr (Longest == 8) {
#pragma unroll 1
        for (; i + 7 * stride < bytes; i += 8 * stride) {
            uint4 part[8];
#pragma unroll
            for (int k = 0; k < 8; ++k) part[k] = Load(from + i + k * stride);
#pragma unroll
            for (int k = 0; k < 8; ++k) Store(to + i + k * stride, part[k]);
        }
    }
#pragma unroll 1
    for (; i + 3 * stride < bytes; i += 4 * stride) {
        const uint4 a = Load(from + i), b = Load(from + i + stride);
        const uint4 c = Load(from + i + 2 * stride), d = Load(from + i + 3 * stride);
        Store(to + i, a);
        Store(to + i + stride, b);
        Store(to + i + 2 * stride, c);
        Store(to + i + 3 * stride, d);
    }
#pragma unroll 1
    for (; i < bytes; i += stride) Store(to + i, Load(from + i));
}

// The copies that a hit of an aligned read does not need are calls, so that they cost the caller no
// registers and no room in its instruction cache. Their loops are not unrolled for the same reason.

// Any alignment: copies 16 bytes at a time if both sides can be aligned, else 4, else single bytes.
template <uint4 (*Load16)(const std::byte*), std::uint32_t (*Load4)(const std::byte*),
          std::byte (*Load1)(const std::byte*)>
PENSTOCK_D PENSTOCK_NOINLINE inline void copy_unaligned(std::byte* to, const std::byte* from,
                                                        std::size_t bytes, std::uint32_t rank,
                                                        std::uint32_t size) {
    const auto t = reinterpret_cast<std::uintptr_t>(to), f = reinterpret_cast<std::uintptr_t>(from);
    const std::uint32_t unit = ((t ^ f) & 15) == 0 ? 16 : ((t ^ f) & 3) == 0 ? 4 : 1;
    std::size_t head = unit == 1 ? bytes : (unit - (f & (unit - 1))) & (unit - 1);
    if (head > bytes) head = bytes;
#pragma unroll 1
    for (std::size_t i = rank; i < head; i += size) to[i] = Load1(from + i);
    const std::size_t body = (bytes - head) & ~std::size_t{unit - 1};
    if (unit == 16)
        copy_aligned_16<Load16, store_plain_16>(to + head, from + head, body, rank, size);
    if (unit == 4) {
#pragma unroll 4
        for (std::size_t i = std::size_t{rank} * 4; i < body; i += std::size_t{size} * 4)
            *reinterpret_cast<std::uint32_t*>(to + head + i) = Load4(from + head + i);
    }
#pragma unroll 1
    for (std::size_t i = head + body + rank; i < bytes; i += size) to[i] = Load1(from + i);
}

// Frame to caller, any alignment.
PENSTOCK_D PENSTOCK_INLINE void copy_from_frame(std::byte* to, const std::byte* from,
                                                std::size_t bytes, std::uint32_t rank,
                                                std::uint32_t size) {
    const std::uintptr_t low =
        reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
    if ((low & 15) == 0)
        copy_aligned_16<load_frame_16, store_plain_16>(to, from, bytes, rank, size);
    else copy_unaligned<load_frame_16, load_frame_4, load_frame_1>(to, from, bytes, rank, size);
}

// Window to caller, any alignment. Inline: as a function it would save its caller's registers in
// local memory (engine/through.hpp).
PENSTOCK_D PENSTOCK_INLINE void copy_from_window(std::byte* to, const std::byte* from,
                                                 std::size_t bytes, std::uint32_t rank,
                                                 std::uint32_t size) {
    const std::uintptr_t low =
        reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
    if ((low & 15) == 0) copy_aligned_16<load_host_16, store_plain_16>(to, from, bytes, rank, size);
    else copy_unaligned<load_host_16, load_host_4, load_host_1>(to, from, bytes, rank, size);
}

PENSTOCK_D PENSTOCK_NOINLINE inline void copy_from_host(std::byte* to, const std::byte* from,
                                                        std::size_t bytes, std::uint32_t rank,
                                                        std::uint32_t size) {
    copy_aligned_16<load_host_16, store_frame_16, 8>(to, from, bytes, rank, size);
}

PENSTOCK_D PENSTOCK_NOINLINE inline void copy_between_frames(std::byte* to, const std::byte* from,
                                                             std::size_t bytes, std::uint32_t rank,
                                                             std::uint32_t size) {
    copy_aligned_16<load_frame_16, store_frame_16>(to, from, bytes, rank, size);
}

PENSTOCK_D PENSTOCK_NOINLINE inline void zero_bytes(std::byte* to, std::size_t bytes,
                                                    std::uint32_t rank, std::uint32_t size) {
    std::size_t head = (16 - (reinterpret_cast<std::uintptr_t>(to) & 15)) & 15;
    if (head > bytes) head = bytes;
    const std::size_t body = (bytes - head) & ~std::size_t{15};
#pragma unroll 1
    for (std::size_t i = rank; i < head; i += size) store_frame_1(to + i, 0);
#pragma unroll 1
    for (std::size_t i = std::size_t{rank} * 16; i < body; i += std::size_t{size} * 16)
        store_frame_16(to + head + i, uint4{});
#pragma unroll 1
    for (std::size_t i = head + body + rank; i < bytes; i += size) store_frame_1(to + i, 0);
}

PENSTOCK_D PENSTOCK_INLINE uint4 load_plain_16(const std::byte* from) {
    return *reinterpret_cast<const uint4*>(from);
}

// Caller to frame, any alignment: 16 or 4 bytes at a time if both sides can be aligned, else single
// bytes. Stores to no byte outside the range, for that byte may belong to another writer.
PENSTOCK_D PENSTOCK_NOINLINE inline void copy_to_frame(std::byte* to, const std::byte* from,
                                                       std::size_t bytes, std::uint32_t rank,
                                                       std::uint32_t size) {
    const auto t = reinterpret_cast<std::uintptr_t>(to), f = reinterpret_cast<std::uintptr_t>(from);
    const std::uint32_t unit = ((t ^ f) & 15) == 0 ? 16 : ((t ^ f) & 3) == 0 ? 4 : 1;
    std::size_t head = unit == 1 ? bytes : (unit - (t & (unit - 1))) & (unit - 1);
    if (head > bytes) head = bytes;
#pragma unroll 1
    for (std::size_t i = rank; i < head; i += size)
        store_frame_1(to + i, static_cast<std::uint32_t>(from[i]));
    const std::size_t body = (bytes - head) & ~std::size_t{unit - 1};
    if (unit == 16)
        copy_aligned_16<load_plain_16, store_frame_16>(to + head, from + head, body, rank, size);
    if (unit == 4) {
#pragma unroll 4
        for (std::size_t i = std::size_t{rank} * 4; i < body; i += std::size_t{size} * 4)
            store_frame_4(to + head + i, *reinterpret_cast<const std::uint32_t*>(from + head + i));
    }
#pragma unroll 1
    for (std::size_t i = head + body + rank; i < bytes; i += size)
        store_frame_1(to + i, static_cast<std::uint32_t>(from[i]));
}

// The copies of a group of a GPU, for every width: each thread does its share.
template <typename Group>
class gpu_copies {
public:
    PENSTOCK_D PENSTOCK_INLINE void copy_out(std::byte* to, const std::byte* from,
                                             std::size_t bytes) const {
        copy_from_frame(to, from, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_through(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) const {
        copy_from_window(to, from, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_in(std::byte* to, const std::byte* from,
                                            std::size_t bytes) const {
        copy_from_host(to, from, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void zero(std::byte* to, std::size_t bytes) const {
        zero_bytes(to, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_store(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        copy_to_frame(to, from, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_written(std::byte* to, const std::byte* from,
                                                 std::size_t bytes) const {
        copy_from_frame(to, from, bytes, self().rank(), self().size());
    }
    PENSTOCK_D PENSTOCK_INLINE void copy_frame(std::byte* to, const std::byte* from,
                                               std::size_t bytes) const {
        copy_between_frames(to, from, bytes, self().rank(), self().size());
    }

private:
    PENSTOCK_D PENSTOCK_INLINE const Group& self() const {
        return static_cast<const Group&>(*this);
    }
};

}  // namespace detail

template <std::uint32_t Lanes>
class tile : public detail::gpu_copies<tile<Lanes>> {
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
    template <typename T>
    PENSTOCK_D PENSTOCK_INLINE T broadcast(T value) const {
        if constexpr (std::is_floating_point_v<T>) {
            return __builtin_bit_cast(T, broadcast(__builtin_bit_cast(detail::shuffled<T>, value)));
        } else {
            using word = detail::shuffled<T>;
            return static_cast<T>(__shfl_sync(mask_, static_cast<word>(value), 0, Lanes));
        }
    }
    PENSTOCK_D PENSTOCK_INLINE bool all(bool flag) const { return __all_sync(mask_, flag) != 0; }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t from_rank(std::uint32_t value,
                                                       std::uint32_t rank) const {
        return __shfl_sync(mask_, value, static_cast<int>(rank), Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t from_rank(std::uint64_t value,
                                                       std::uint32_t rank) const {
        return __shfl_sync(mask_, static_cast<unsigned long long>(value), static_cast<int>(rank),
                           Lanes);
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t votes(bool flag) const {
        const std::uint32_t of_warp = __ballot_sync(mask_, flag);
        return (of_warp & mask_) >>
               (static_cast<std::uint32_t>(__ffs(static_cast<int>(mask_))) - 1u);
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t home() const { return detail::device_warp_place(); }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t now_ns() const { return detail::device_now_ns(); }
    PENSTOCK_D PENSTOCK_INLINE void pause(std::uint32_t round) const {
        detail::device_pause(round);
    }
    PENSTOCK_D PENSTOCK_INLINE void wake(host_doorbell*) const {}
    static constexpr PENSTOCK_HD bool copies_race() { return true; }

private:
    std::uint32_t rank_;
    std::uint32_t mask_;
};

using warp = tile<32>;

class block : public detail::gpu_copies<block> {
public:
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t size() const {
        return blockDim.x * blockDim.y * blockDim.z;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t rank() const {
        return detail::device_thread_in_block();
    }
    PENSTOCK_D PENSTOCK_INLINE bool is_leader() const { return rank() == 0; }
    PENSTOCK_D PENSTOCK_INLINE void sync() const { __syncthreads(); }

    template <typename T>
    PENSTOCK_D PENSTOCK_INLINE T broadcast(T value) const {
        if constexpr (std::is_floating_point_v<T>) {
            return __builtin_bit_cast(T, broadcast(__builtin_bit_cast(detail::shuffled<T>, value)));
        } else {
            __shared__ unsigned long long word;
            __syncthreads();  // all threads have read the word of the last broadcast
            if (is_leader()) word = static_cast<unsigned long long>(value);
            __syncthreads();  // the leader's value is there
            return static_cast<T>(word);
        }
    }

    PENSTOCK_D PENSTOCK_INLINE bool all(bool flag) const { return __syncthreads_and(flag) != 0; }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t least(std::uint64_t value) const {
        __shared__ unsigned long long word;
        __syncthreads();  // all threads have read the word of the last call
        if (is_leader()) word = ~0ull;
        __syncthreads();  // the word is ready
        atomicMin(&word, static_cast<unsigned long long>(value));
        __syncthreads();  // every thread's value is in
        return word;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint32_t home() const {
        return detail::device_block_number() * 32u;
    }
    PENSTOCK_D PENSTOCK_INLINE std::uint64_t now_ns() const { return detail::device_now_ns(); }
    PENSTOCK_D PENSTOCK_INLINE void pause(std::uint32_t round) const {
        detail::device_pause(round);
    }
    PENSTOCK_D PENSTOCK_INLINE void wake(host_doorbell*) const {}
    static constexpr PENSTOCK_HD bool copies_race() { return true; }
};

static_assert(narrow_group<warp> && narrow_group<tile<8>> && group_of_warps<block>);

template <std::uint32_t Lanes>
PENSTOCK_D PENSTOCK_INLINE tile<Lanes> this_tile() {
    return {};
}
PENSTOCK_D PENSTOCK_INLINE warp this_warp() { return {}; }
PENSTOCK_D PENSTOCK_INLINE block this_block() { return {}; }

}  // namespace penstock
