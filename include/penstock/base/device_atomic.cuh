// The orders and scopes of an atomic access (base/atomic.hpp), and the atomics of a GPU: one PTX
// instruction each, by order and scope, for words of 4 and 8 bytes; bytes are loaded and stored as
// well, relaxed.
//
// They are the instructions of libcu++'s atomic_ref, whose header costs each file that includes it
// three seconds of compiling. The address of a load or store is generic, that of a change global.
// Every instruction is volatile and clobbers memory: the compiler moves no access across it.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

namespace penstock {

enum class order { relaxed, acquire, release, acq_rel };

// device: seen by the threads of one device (a GPU, or the threads of the cpu back end).
// system: seen by the host as well, for words in host memory that GPU and CPU share.
enum class scope { device, system };

}  // namespace penstock

#if defined(__CUDACC__)
namespace penstock::device_atomic {

// asm of PTX whose name has the scope, or the order and the scope, between `before` and `after`;
// the rest are its operands.
#define PENSTOCK_PTX_SCOPED(before, after, ...)                                              \
    do {                                                                                     \
        if constexpr (Scope == scope::system) asm volatile(before ".sys" after __VA_ARGS__); \
        else asm volatile(before ".gpu" after __VA_ARGS__);                                  \
    } while (false)
#define PENSTOCK_PTX_ORDERED(before, after, ...)                         \
    do {                                                                 \
        if constexpr (Order == order::relaxed)                           \
            PENSTOCK_PTX_SCOPED(before ".relaxed", after, __VA_ARGS__);  \
        else if constexpr (Order == order::acquire)                      \
            PENSTOCK_PTX_SCOPED(before ".acquire", after, __VA_ARGS__);  \
        else if constexpr (Order == order::release)                      \
            PENSTOCK_PTX_SCOPED(before ".release", after, __VA_ARGS__);  \
        else PENSTOCK_PTX_SCOPED(before ".acq_rel", after, __VA_ARGS__); \
    } while (false)

// A word as the register that holds it: the value of an integer, the bits of a floating-point
// number.
template <typename T>
using word_of = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;

template <typename T>
PENSTOCK_D PENSTOCK_INLINE word_of<T> to_word(T value) {
    if constexpr (!std::is_floating_point_v<T>) return static_cast<word_of<T>>(value);
    else return __builtin_bit_cast(word_of<T>, value);
}
template <typename T>
PENSTOCK_D PENSTOCK_INLINE T from_word(word_of<T> word) {
    if constexpr (!std::is_floating_point_v<T>) return static_cast<T>(word);
    else return __builtin_bit_cast(T, word);
}

template <order Order, scope Scope, typename T>
PENSTOCK_D PENSTOCK_INLINE T load(const T* address) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || (sizeof(T) == 1 && Order == order::relaxed));
    word_of<T> value;
    if constexpr (sizeof(T) == 1)
        PENSTOCK_PTX_SCOPED("ld.relaxed", ".u8 %0,[%1];", : "=r"(value) : "l"(address) : "memory");
    else if constexpr (Order == order::acquire && sizeof(T) == 8)
        PENSTOCK_PTX_SCOPED("ld.acquire", ".b64 %0,[%1];", : "=l"(value) : "l"(address) : "memory");
    else if constexpr (Order == order::acquire)
        PENSTOCK_PTX_SCOPED("ld.acquire", ".b32 %0,[%1];", : "=r"(value) : "l"(address) : "memory");
    else if constexpr (sizeof(T) == 8)
        PENSTOCK_PTX_SCOPED("ld.relaxed", ".b64 %0,[%1];", : "=l"(value) : "l"(address) : "memory");
    else
        PENSTOCK_PTX_SCOPED("ld.relaxed", ".b32 %0,[%1];", : "=r"(value) : "l"(address) : "memory");
    return from_word<T>(value);
}

template <order Order, scope Scope, typename T>
PENSTOCK_D PENSTOCK_INLINE void store(T* address, T value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8 || (sizeof(T) == 1 && Order == order::relaxed));
    const auto word = to_word(value);
    if constexpr (sizeof(T) == 1)
        PENSTOCK_PTX_SCOPED("st.relaxed", ".u8 [%0],%1;", ::"l"(address), "r"(word) : "memory");
    else if constexpr (Order == order::release && sizeof(T) == 8)
        PENSTOCK_PTX_SCOPED("st.release", ".b64 [%0],%1;", ::"l"(address), "l"(word) : "memory");
    else if constexpr (Order == order::release)
        PENSTOCK_PTX_SCOPED("st.release", ".b32 [%0],%1;", ::"l"(address), "r"(word) : "memory");
    else if constexpr (sizeof(T) == 8)
        PENSTOCK_PTX_SCOPED("st.relaxed", ".b64 [%0],%1;", ::"l"(address), "l"(word) : "memory");
    else PENSTOCK_PTX_SCOPED("st.relaxed", ".b32 [%0],%1;", ::"l"(address), "r"(word) : "memory");
}

// Returns the value before, as do all below. The word of a change lies in device or host memory,
// never in shared memory: of an atomic at any address nvcc makes branches and several ways, of a
// swap some forty instructions.
template <order Order, scope Scope, typename T>
PENSTOCK_D PENSTOCK_INLINE T compare_swap(T* address, T expected, T desired) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    const auto word = to_word(expected), next = to_word(desired);
    word_of<T> before;
    if constexpr (sizeof(T) == 8)
        PENSTOCK_PTX_ORDERED("atom.cas", ".global.b64 %0,[%1],%2,%3;",
                             : "=l"(before)
                             : "l"(__cvta_generic_to_global(address)), "l"(word), "l"(next)
                             : "memory");
    else
        PENSTOCK_PTX_ORDERED("atom.cas", ".global.b32 %0,[%1],%2,%3;",
                             : "=r"(before)
                             : "l"(__cvta_generic_to_global(address)), "r"(word), "r"(next)
                             : "memory");
    return from_word<T>(before);
}

// name(address, value): the atomic `instruction` on words of the kinds `wide` and `narrow`.
#define PENSTOCK_DEVICE_ATOMIC(name, instruction, wide, narrow)                      \
    template <order Order, scope Scope, typename T>                                  \
    PENSTOCK_D PENSTOCK_INLINE T name(T* address, T value) {                         \
        static_assert(sizeof(T) == 4 || sizeof(T) == 8);                             \
        const auto word = to_word(value);                                            \
        word_of<T> before;                                                           \
        if constexpr (sizeof(T) == 8)                                                \
            PENSTOCK_PTX_ORDERED(instruction, ".global." wide " %0,[%1],%2;",        \
                                 : "=l"(before)                                      \
                                 : "l"(__cvta_generic_to_global(address)), "l"(word) \
                                 : "memory");                                        \
        else                                                                         \
            PENSTOCK_PTX_ORDERED(instruction, ".global." narrow " %0,[%1],%2;",      \
                                 : "=r"(before)                                      \
                                 : "l"(__cvta_generic_to_global(address)), "r"(word) \
                                 : "memory");                                        \
        return from_word<T>(before);                                                 \
    }
PENSTOCK_DEVICE_ATOMIC(add_integers, "atom.add", "u64", "u32")
PENSTOCK_DEVICE_ATOMIC(exchange, "atom.exch", "b64", "b32")
PENSTOCK_DEVICE_ATOMIC(fetch_or, "atom.or", "b64", "b32")
PENSTOCK_DEVICE_ATOMIC(fetch_and, "atom.and", "b64", "b32")
PENSTOCK_DEVICE_ATOMIC(max_unsigned, "atom.max", "u64", "u32")
#undef PENSTOCK_DEVICE_ATOMIC

template <order Order, scope Scope, typename T>
PENSTOCK_D PENSTOCK_INLINE T fetch_add(T* address, T value) {
    if constexpr (!std::is_floating_point_v<T>) {
        return add_integers<Order, Scope>(address, value);
    } else {
        T before;
        if constexpr (sizeof(T) == 8)
            PENSTOCK_PTX_ORDERED("atom.add", ".global.f64 %0,[%1],%2;",
                                 : "=d"(before)
                                 : "l"(__cvta_generic_to_global(address)), "d"(value)
                                 : "memory");
        else
            PENSTOCK_PTX_ORDERED("atom.add", ".global.f32 %0,[%1],%2;",
                                 : "=f"(before)
                                 : "l"(__cvta_generic_to_global(address)), "f"(value)
                                 : "memory");
        return before;
    }
}

template <order Order, scope Scope, typename T>
PENSTOCK_D PENSTOCK_INLINE T fetch_max(T* address, T value) {
    static_assert(std::is_unsigned_v<T>);
    return max_unsigned<Order, Scope>(address, value);
}

// name(address, value): a relaxed change at device scope that gives nothing back. It is sent off
// and not waited for. (An atomic whose result is unused comes back to the thread all the same.)
#define PENSTOCK_DEVICE_REDUCTION(name, instruction, wide, narrow)             \
    template <typename T>                                                      \
    PENSTOCK_D PENSTOCK_INLINE void name(T* address, T value) {                \
        static_assert(sizeof(T) == 4 || sizeof(T) == 8);                       \
        const auto word = to_word(value);                                      \
        if constexpr (sizeof(T) == 8)                                          \
            asm volatile("red.relaxed.gpu.global." instruction "." wide        \
                         " [%0],%1;" ::"l"(__cvta_generic_to_global(address)), \
                         "l"(word)                                             \
                         : "memory");                                          \
        else                                                                   \
            asm volatile("red.relaxed.gpu.global." instruction "." narrow      \
                         " [%0],%1;" ::"l"(__cvta_generic_to_global(address)), \
                         "r"(word)                                             \
                         : "memory");                                          \
    }
PENSTOCK_DEVICE_REDUCTION(reduce_add, "add", "u64", "u32")
PENSTOCK_DEVICE_REDUCTION(reduce_or, "or", "b64", "b32")
PENSTOCK_DEVICE_REDUCTION(reduce_and, "and", "b64", "b32")
#undef PENSTOCK_DEVICE_REDUCTION

// Two-way.
template <scope Scope>
PENSTOCK_D PENSTOCK_INLINE void fence() {
    PENSTOCK_PTX_SCOPED("fence.acq_rel", ";", ::: "memory");
}
#undef PENSTOCK_PTX_ORDERED
#undef PENSTOCK_PTX_SCOPED

}  // namespace penstock::device_atomic
#endif
