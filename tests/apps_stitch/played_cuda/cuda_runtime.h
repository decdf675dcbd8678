// As much of CUDA as the kernel of penstock-stitch needs, played by CPU threads, so that its text is tested where there is no GPU.
#pragma once

#include <barrier>

struct played_number {
    unsigned x;
};
inline constexpr unsigned played_threads = 64;
inline constexpr played_number blockDim{played_threads};
inline thread_local played_number threadIdx{}, blockIdx{};
inline std::barrier<> played_barrier(played_threads);

inline void __syncthreads() { played_barrier.arrive_and_wait(); }

#define __global__
#define __device__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(threads)
