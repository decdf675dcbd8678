// How many thread blocks of a kernel a GPU runs at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>

namespace penstock::apps {

// At least 1. Asking also loads the kernel, before any clock runs.
template <typename Kernel>
std::uint64_t resident_blocks(int device, Kernel kernel, std::uint32_t threads_per_block) {
    int multiprocessors = 1, resident = 1, current = 0;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    cudaGetDevice(&current);
    cudaSetDevice(device);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel,
                                                  static_cast<int>(threads_per_block), 0);
    cudaSetDevice(current);
    return static_cast<std::uint64_t>(std::max(multiprocessors, 1)) *
           static_cast<std::uint64_t>(std::max(resident, 1));
}

}  // namespace penstock::apps
