// Atomics with an explicit order and scope, one spelling for GPU and host.
//
// On the GPU these are the instructions of base/device_atomic.cuh; on the host they are the
// compiler's own, those behind std::atomic_ref, and scope has no meaning: neither needs a heavy
// header. The choice is made inside the function bodies, so one program may mix files compiled by
// nvcc and by g++ without two definitions of the same function.
//
// Thread safety: these are the primitives of it. Which order is used where, and why, is said at the
// steps that use it: those of the words of the engine in engine/page_word.hpp,
// engine/file_word.hpp, engine/ring.hpp and engine/dirty.hpp.
//
// A test that explores schedules defines PENSTOCK_SCHEDULE_POINT(address, is_write) before it
// includes any Penstock header; it is called before every access here. Everywhere else the macro is
// empty.
#pragma once

#include "penstock/base/device_atomic.cuh"
#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

#if !defined(PENSTOCK_SCHEDULE_POINT)
#define PENSTOCK_SCHEDULE_POINT(address, is_write) static_cast<void>(0)
#endif

namespace penstock {

#if !defined(__CUDACC_RTC__)
namespace detail {

// The compiler's name of an order; a constant, since a compiler takes any other value for the
// strictest order.
template <order Order>
inline constexpr int host_order = Order == order::acquire   ? __ATOMIC_ACQUIRE
                                  : Order == order::release ? __ATOMIC_RELEASE
                                  : Order == order::acq_rel ? __ATOMIC_ACQ_REL
                                                            : __ATOMIC_RELAXED;

// A failed compare-and-swap publishes nothing, so it keeps only the acquire half.
template <order Order>
inline constexpr int host_failure_order =
    Order == order::acq_rel || Order == order::acquire ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED;

}  // namespace detail
#endif

template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE T atomic_load(const T* address) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::load<Order, Scope>(address);
#else
    PENSTOCK_SCHEDULE_POINT(address, false);
    return __atomic_load_n(address, detail::host_order<Order>);
#endif
}

template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE void atomic_store(T* address, T value) {
#if PENSTOCK_ON_DEVICE
    device_atomic::store<Order, Scope>(address, value);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    __atomic_store_n(address, value, detail::host_order<Order>);
#endif
}

// This and all changes of a word below: on the GPU the word lies in device or host memory, never in
// shared memory, which would cost each of them a branch and two more ways.
//
// True if the word held `expected` and now holds `desired`. Strong: it does not fail without cause.
template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE bool atomic_compare_swap(T* address, T expected, T desired) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::compare_swap<Order, Scope>(address, expected, desired) == expected;
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    return __atomic_compare_exchange_n(address, &expected, desired, false,
                                       detail::host_order<Order>,
                                       detail::host_failure_order<Order>);
#endif
}

// Returns the value before the addition.
template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE T atomic_fetch_add(T* address, T value) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::fetch_add<Order, Scope>(address, value);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    if constexpr (std::is_floating_point_v<T>) {  // the builtin has integers alone
        T seen, sum;
        __atomic_load(address, &seen, __ATOMIC_RELAXED);
        do sum = seen + value;
        while (!__atomic_compare_exchange(address, &seen, &sum, false, detail::host_order<Order>,
                                          __ATOMIC_RELAXED));
        return seen;
    } else {
        return __atomic_fetch_add(address, value, detail::host_order<Order>);
    }
#endif
}

// These return the value before.
template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE T atomic_exchange(T* address, T value) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::exchange<Order, Scope>(address, value);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    return __atomic_exchange_n(address, value, detail::host_order<Order>);
#endif
}

template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE T atomic_fetch_or(T* address, T bits) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::fetch_or<Order, Scope>(address, bits);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    return __atomic_fetch_or(address, bits, detail::host_order<Order>);
#endif
}

template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE T atomic_fetch_and(T* address, T bits) {
#if PENSTOCK_ON_DEVICE
    return device_atomic::fetch_and<Order, Scope>(address, bits);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    return __atomic_fetch_and(address, bits, detail::host_order<Order>);
#endif
}

// Raises the word to `value` unless it is that large already.
template <order Order, scope Scope = scope::device, typename T>
PENSTOCK_HD PENSTOCK_INLINE void atomic_raise(T* address, T value) {
#if PENSTOCK_ON_DEVICE
    static_cast<void>(device_atomic::fetch_max<Order, Scope>(address, value));
#else
    T seen = atomic_load<order::relaxed>(address);
    while (seen < value && !atomic_compare_swap<Order>(address, seen, value))
        seen = atomic_load<order::relaxed>(address);
#endif
}

// Additions and bit changes whose old value is not needed: relaxed, device scope. On the GPU they
// become reductions, which are sent off and not waited for.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE void atomic_add_relaxed(T* address, T value) {
#if PENSTOCK_ON_DEVICE
    device_atomic::reduce_add(address, value);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
#endif
}

// Additions to a word in device or host memory, never shared memory, at device scope. A compiler
// that does not know where a word lies makes of an atomic a branch and two more ways; and of an
// addition whose result is unused nvcc 13 makes one that comes back to the thread all the same,
// where a reduction by its own name does not: 3 % of the speed of a hit
// (bench/results/h100/2026-11-24-hit-path.txt).
//
// add_acquire returns the value before.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t add_acquire(std::uint64_t* address, std::uint64_t value) {
#if PENSTOCK_ON_DEVICE
    std::uint64_t before;
    asm volatile("atom.acquire.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(before)
                 : "l"(__cvta_generic_to_global(address)), "l"(value)
                 : "memory");
    return before;
#else
    return atomic_fetch_add<order::acquire>(address, value);
#endif
}

PENSTOCK_HD PENSTOCK_INLINE void reduce_relaxed(std::uint64_t* address, std::uint64_t value) {
#if PENSTOCK_ON_DEVICE
    device_atomic::reduce_add(address, value);
#else
    static_cast<void>(atomic_fetch_add<order::relaxed>(address, value));
#endif
}

PENSTOCK_HD PENSTOCK_INLINE void reduce_release(std::uint64_t* address, std::uint64_t value) {
#if PENSTOCK_ON_DEVICE
    asm volatile(
        "red.release.gpu.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(address)),
        "l"(value)
        : "memory");
#else
    static_cast<void>(atomic_fetch_add<order::release>(address, value));
#endif
}

// A number of any kind; the value before.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE T fetch_add_relaxed(T* address, T value) {
    return atomic_fetch_add<order::relaxed>(address, value);
}

PENSTOCK_HD PENSTOCK_INLINE void atomic_or_relaxed(std::uint64_t* address, std::uint64_t bits) {
#if PENSTOCK_ON_DEVICE
    device_atomic::reduce_or(address, bits);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    __atomic_fetch_or(address, bits, __ATOMIC_RELAXED);
#endif
}

PENSTOCK_HD PENSTOCK_INLINE void atomic_and_relaxed(std::uint64_t* address, std::uint64_t bits) {
#if PENSTOCK_ON_DEVICE
    device_atomic::reduce_and(address, bits);
#else
    PENSTOCK_SCHEDULE_POINT(address, true);
    __atomic_fetch_and(address, bits, __ATOMIC_RELAXED);
#endif
}

#if !defined(__CUDACC_RTC__)
namespace detail {
// ThreadSanitizer does not model fences, so on the host every access that relies on one is itself
// atomic; there is then no plain access for it to misjudge.
inline void host_fence() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wtsan"
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#pragma GCC diagnostic pop
}
}  // namespace detail
#endif

// Orders the calling thread's loads: those before the call come before those after it. Nothing is
// promised to others.
//
// On the GPU this is a fence of block scope. The CUDA programming guide gives it this meaning
// without regard to scope (memory fence functions: reads before __threadfence_block are ordered
// before reads after it), and says of a device fence that no thread of the device sees its caller's
// writes in another order; together they make a reader that orders its loads see the writes of a
// writer that fences in their order. PTX's formal model asks for device scope on both sides, which
// costs a sixth of the speed of hits on an H200 (docs/protocol/page_word.md); define
// PENSTOCK_STRICT_FENCES to have it.
PENSTOCK_HD PENSTOCK_INLINE void order_loads() {
#if PENSTOCK_ON_DEVICE && !defined(PENSTOCK_STRICT_FENCES)
    __threadfence_block();
#elif PENSTOCK_ON_DEVICE
    device_atomic::fence<scope::device>();
#else
    detail::host_fence();
#endif
}

// A two-way fence at device scope.
PENSTOCK_HD PENSTOCK_INLINE void atomic_fence() {
#if PENSTOCK_ON_DEVICE
    device_atomic::fence<scope::device>();
#else
    detail::host_fence();
#endif
}

// At device scope, for what comes before it: with a relaxed change of a word after it, that change
// is a release. Unlike a two-way fence it leaves the first-level cache of a GPU as it is.
// (Compilers before CUDA 13 may not have it.)
PENSTOCK_HD PENSTOCK_INLINE void release_fence() {
#if PENSTOCK_ON_DEVICE && __CUDACC_VER_MAJOR__ >= 13
    asm volatile("fence.release.gpu;" ::: "memory");
#else
    atomic_fence();
#endif
}

// A two-way fence at system scope: before the group tells others of what it wrote to host memory.
PENSTOCK_HD PENSTOCK_INLINE void system_fence() {
#if PENSTOCK_ON_DEVICE
    device_atomic::fence<scope::system>();
#else
    detail::host_fence();
#endif
}

// Before a lost compare-and-swap is tried again: the longer, the more often it was lost, and by
// chance. Thousands of groups of a GPU that try for one word at once keep each other from it. With
// equal waits they come back together: a step of the word took 12.2 us, and takes 0.54
// (bench/results/h100/2026-11-27-lost-swaps.txt). The few threads of a processor need no wait.
PENSTOCK_HD PENSTOCK_INLINE void let_others_first([[maybe_unused]] std::uint32_t round) {
#if PENSTOCK_ON_DEVICE
    const std::uint32_t most_ns = 32u << (round < 10 ? round : 10);
    // Warps that lost at the same time differ in their number, and a warp's turns in the clock.
    std::uint32_t chance = static_cast<std::uint32_t>(clock64()) ^
                           (blockIdx.x * 32u + threadIdx.x / 32u) * 0x9e3779b1u;
    chance ^= chance >> 15;
    chance *= 0x85ebca6bu;
    __nanosleep((chance >> 16) & (most_ns - 1));
#endif
}

}  // namespace penstock
