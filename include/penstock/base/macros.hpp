// Compiler vocabulary: which functions run where, and which are called by their address.
#pragma once

#include "penstock/base/language.hpp"

// PENSTOCK_HD marks a function that runs on the host and on the GPU. Plain g++ sees an empty macro,
// so every header under base/, group/ (the .hpp ones) and engine/ compiles without CUDA.
#if defined(__CUDACC__)
#define PENSTOCK_HD __host__ __device__
#define PENSTOCK_D __device__
#define PENSTOCK_INLINE __forceinline__
#else
#define PENSTOCK_HD
#define PENSTOCK_D
#define PENSTOCK_INLINE inline
#endif

// The miss path stays out of line so that its registers do not count against the hit path of the
// calling kernel.
#if defined(__CUDACC__) || defined(__GNUC__)
#define PENSTOCK_NOINLINE __attribute__((noinline))
#else
#define PENSTOCK_NOINLINE
#endif

// Before a loop of a few rounds that a GPU should have in one piece, its array in registers.
#if defined(__CUDA_ARCH__)
#define PENSTOCK_UNROLL _Pragma("unroll")
#else
#define PENSTOCK_UNROLL
#endif

// Before a loop that is not worth being fast: a GPU's compiler would write its body out four times.
#if defined(__CUDA_ARCH__)
#define PENSTOCK_ROLLED _Pragma("unroll 1")
#else
#define PENSTOCK_ROLLED
#endif

// True inside a function body that is being compiled for the GPU.
#if defined(__CUDA_ARCH__)
#define PENSTOCK_ON_DEVICE 1
#else
#define PENSTOCK_ON_DEVICE 0
#endif

// Programmer errors. On in debug builds and in the tests; an operating error is never an assertion.
#if defined(PENSTOCK_ASSERTIONS)
#include <cassert>
#define PENSTOCK_ASSERT(condition) assert(condition)
#else
#define PENSTOCK_ASSERT(condition) static_cast<void>(0)
#endif

namespace penstock {

// Calling a function by its address, so that the compiler cannot see which one it is.
//
// For the doors between the hit path, which is inlined into the user's kernel, and the miss path.
// nvcc gives a function that it sees called registers above those of its callers, so the registers
// along a chain of calls add up and the sum counts against every kernel that contains a hit, or is
// spilled there. A function called by address keeps to the calling convention: it saves what it
// uses, on the path that is slow anyway. Measured on a loop of reads (nvcc 13.0, sm_90): 179
// registers by direct calls, 82 by address; held to 64 registers, 18 moves to and from the stack on
// a hit and none.
template <typename Function>
PENSTOCK_HD PENSTOCK_INLINE Function* by_address(Function* function) {
#if PENSTOCK_ON_DEVICE
    asm volatile("" : "+l"(function));
#endif
    return function;
}

// How a function calls the next one. Code that is inline in the user's kernel calls by address;
// other code calls directly. A function that is called by address may not
// call another function by address: the compiler would take that for a circle, and would not know
// how much stack the kernel needs.
enum class call_kind { direct, by_address };

template <call_kind Call, typename Function>
PENSTOCK_HD PENSTOCK_INLINE Function* door(Function* function) {
    if constexpr (Call == call_kind::by_address) return by_address(function);
    else return function;
}

}  // namespace penstock
