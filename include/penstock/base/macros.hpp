// Compiler vocabulary: which functions run where. Nothing here has behaviour.
#pragma once

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
