// One thread as a group: a lane of the cpu back end, or a single CUDA thread on the GPU.
//
// Convergence: none needed. On the GPU, lanes of one warp may call with different arguments; they
// then run one after the other, so prefer a warp if the lanes want the same page.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/group/doorbell.hpp"
#include "penstock/group/host_copy.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock {

#if !defined(__CUDACC_RTC__)
namespace detail {

// A small number for this host thread, handed out in order of first use.
inline std::uint32_t host_thread_number() {
    static std::uint32_t next = 0;
    thread_local const std::uint32_t number = __atomic_fetch_add(&next, 1u, __ATOMIC_RELAXED);
    return number;
}

// These are in the library (src/os/host_thread.cpp), so that a kernel's file does not compile the
// headers of clocks and threads.
std::uint64_t host_now_ns();
void host_nap();
void host_yield_or_nap(std::uint32_t round);

// Spins briefly, then yields, then naps: on a small machine the awaited thread may need this
// processor.
inline void host_pause(std::uint32_t round) {
    constexpr std::uint32_t spins = 64;
    if (round >= spins) return host_yield_or_nap(round - spins);
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Copies of single bytes and words, each atomic in itself, for hosts where copies must not race:
// one side is a frame that other threads use at the same time.
inline void store_atomically(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        __atomic_store_n(reinterpret_cast<std::uint8_t*>(to + i),
                         static_cast<std::uint8_t>(from[i]), __ATOMIC_RELAXED);
}
inline void load_atomically(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 8) {
        const auto* const word = reinterpret_cast<const std::uint64_t*>(from + i);
        const std::uint64_t value = __atomic_load_n(word, __ATOMIC_RELAXED);
        std::memcpy(to + i, &value, 8);
    }
}

// The same at any place and of any length: words where `from` allows it, single bytes elsewhere.
inline void load_bytes_atomically(std::byte* to, const std::byte* from, std::size_t bytes) {
    const auto single = [&](std::size_t i) {
        to[i] = std::byte{
            __atomic_load_n(reinterpret_cast<const std::uint8_t*>(from + i), __ATOMIC_RELAXED)};
    };
    std::size_t at = 0;
    for (; at < bytes && reinterpret_cast<std::uintptr_t>(from + at) % 8 != 0; ++at) single(at);
    const std::size_t words = (bytes - at) & ~std::size_t{7};
    load_atomically(to + at, from + at, words);
    for (at += words; at < bytes; ++at) single(at);
}

inline void copy_atomically(std::byte* to, const std::byte* from, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 8) {
        std::uint64_t value = 0;
        load_atomically(reinterpret_cast<std::byte*>(&value), from + i, 8);
        __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + i), value, __ATOMIC_RELAXED);
    }
}

}  // namespace detail
#endif

struct lane {
    PENSTOCK_HD std::uint32_t size() const { return 1; }
    PENSTOCK_HD std::uint32_t rank() const { return 0; }
    PENSTOCK_HD bool is_leader() const { return true; }
    PENSTOCK_HD void sync() const {}
    template <typename T>
    PENSTOCK_HD T broadcast(T value) const {
        return value;
    }
    PENSTOCK_HD bool all(bool flag) const { return flag; }
    template <typename Value>
    PENSTOCK_HD Value from_rank(Value value, std::uint32_t) const {
        return value;
    }
    PENSTOCK_HD std::uint32_t votes(bool flag) const { return flag ? 1 : 0; }

    PENSTOCK_HD std::uint32_t home() const {
#if PENSTOCK_ON_DEVICE
        return detail::device_warp_place();
#else
        return detail::host_thread_number();
#endif
    }

    PENSTOCK_HD std::uint64_t now_ns() const {
#if PENSTOCK_ON_DEVICE
        return detail::device_now_ns();
#else
        return detail::host_now_ns();
#endif
    }

    PENSTOCK_HD void pause(std::uint32_t round) const {
#if PENSTOCK_ON_DEVICE
        detail::device_pause(round);
#else
        detail::host_pause(round);
#endif
    }

    PENSTOCK_HD void wake(host_doorbell* doorbell) const {
#if !PENSTOCK_ON_DEVICE
        if (doorbell != nullptr) doorbell->ring();
#else
        static_cast<void>(doorbell);
#endif
    }

    static constexpr PENSTOCK_HD bool copies_race() {
        return PENSTOCK_ON_DEVICE != 0 || PENSTOCK_HOST_COPIES_RACE != 0;
    }

    PENSTOCK_HD void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_from_frame(to, from, bytes, 0, 1);
#elif PENSTOCK_HOST_COPIES_RACE
        detail::copy_while_racing(to, from, bytes);
#elif defined(__SANITIZE_THREAD__)
        // Other groups may write these bytes meanwhile; a reader then gets old or new bytes. A
        // sanitizer would report a plain copy as a race.
        for (std::size_t i = 0; i < bytes; ++i)
            to[i] = std::byte{
                __atomic_load_n(reinterpret_cast<const std::uint8_t*>(from + i), __ATOMIC_RELAXED)};
#else
        std::memcpy(to, from, bytes);
#endif
    }

    PENSTOCK_HD void copy_through(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_from_window(to, from, bytes, 0, 1);
#else
        // Programs may write to the file meanwhile, and a neighbour may give the frame to another
        // page.
#if PENSTOCK_HOST_COPIES_RACE
        detail::copy_while_racing(to, from, bytes);
#else
        detail::load_bytes_atomically(to, from, bytes);
#endif
#endif
    }

    PENSTOCK_HD void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_from_host(to, from, bytes, 0, 1);
#elif !PENSTOCK_HOST_COPIES_RACE
        // Groups of another kind, or of a linked cache, may read the frame without a pin, word by
        // word, and `from` may be a frame of a linked cache: plain copies would be races.
        detail::copy_atomically(to, from, bytes);
#else
        std::memcpy(to, from, bytes);
#endif
    }

    PENSTOCK_HD void zero(std::byte* to, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::zero_bytes(to, bytes, 0, 1);
#elif defined(__SANITIZE_THREAD__)
        for (std::size_t i = 0; i < bytes; ++i)
            __atomic_store_n(reinterpret_cast<std::uint8_t*>(to + i), 0, __ATOMIC_RELAXED);
#else
        std::memset(to, 0, bytes);
#endif
    }

    PENSTOCK_HD void copy_store(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_to_frame(to, from, bytes, 0, 1);
#elif PENSTOCK_HOST_COPIES_RACE
        detail::copy_while_racing(to, from, bytes);
#else
        detail::store_atomically(to, from, bytes);
#endif
    }

    PENSTOCK_HD void copy_written(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_from_frame(to, from, bytes, 0, 1);
#elif PENSTOCK_HOST_COPIES_RACE
        detail::copy_while_racing(to, from, bytes);
#else
        detail::load_atomically(to, from, bytes);
#endif
    }

    PENSTOCK_HD void copy_frame(std::byte* to, const std::byte* from, std::size_t bytes) const {
#if PENSTOCK_ON_DEVICE
        detail::copy_between_frames(to, from, bytes, 0, 1);
#elif PENSTOCK_HOST_COPIES_RACE
        detail::copy_while_racing(to, from, bytes);
#else
        detail::copy_atomically(to, from, bytes);
#endif
    }
};

static_assert(narrow_group<lane>);

}  // namespace penstock
