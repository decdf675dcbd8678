// What the cases on a GPU share: CUDA calls that fail as others do, and how long and how broad
// kernels run.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>

#include "bench.hpp"
#include "common/gpu.cuh"

namespace penstock::bench {

inline status cuda_status(cudaError_t code, const std::string& call) {
    if (code == cudaSuccess) return {};
    cudaGetLastError();
    return {code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            "CUDA, " + call + ": " + cudaGetErrorString(code) +
                (code == cudaErrorMemoryAllocation ? "; give a smaller --file" : "")};
}

inline void require_cuda(cudaError_t code, const std::string& call) {
    require(cuda_status(code, call));
}

inline int multiprocessors() {
    int count = 0, device = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// As many blocks as the device holds at a time.
template <typename Kernel>
std::uint32_t full_grid(Kernel* kernel, int threads = 256, std::uint64_t shared_bytes = 0) {
    int resident = 0;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes);
    return static_cast<std::uint32_t>(std::max(resident * multiprocessors(), 1));
}

// Seconds that launch() kept the device busy, by its own events.
template <typename Launch>
double kernel_seconds(const Launch& launch) {
    apps::gpu_event begin, end;
    float ms = 0;
    require_cuda(cudaEventCreate(&begin), "event");
    require_cuda(cudaEventCreate(&end), "event");
    require_cuda(cudaEventRecord(begin), "event");
    launch();
    require_cuda(cudaGetLastError(), "kernel");
    require_cuda(cudaEventRecord(end), "event");
    require_cuda(cudaEventSynchronize(end), "kernel");
    require_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    return 1e-3 * ms;
}

}  // namespace penstock::bench
