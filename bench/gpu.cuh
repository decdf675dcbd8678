// What the cases on a GPU share: CUDA calls that fail as others do, and how long and how broad
// kernels run.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <optional>
#include <sys/mman.h>

#include "bench.hpp"
#include "common/gpu.cuh"
#include "scratch_file.hpp"

namespace penstock::bench {

inline void require_cuda(cudaError_t code, std::string_view call) {
    if (code == cudaSuccess) return;
    cudaGetLastError();
    const bool no_room = code == cudaErrorMemoryAllocation;
    throw failure(no_room ? -ENOMEM : -EIO, "CUDA, " + std::string(call) + ": " +
                                                cudaGetErrorString(code) +
                                                (no_room ? "; give a smaller --file" : ""));
}

// Makes a GPU the thread's current one, for a scope.
class on_gpu {
public:
    explicit on_gpu(std::uint32_t number) {
        cudaGetDevice(&before_);
        cudaSetDevice(static_cast<int>(number));
    }
    ~on_gpu() { cudaSetDevice(before_); }
    on_gpu(const on_gpu&) = delete;
    on_gpu& operator=(const on_gpu&) = delete;

private:
    int before_ = 0;
};

inline std::uint32_t gpu_count() {
    int count = 0;
    cudaGetDeviceCount(&count);
    return static_cast<std::uint32_t>(count);
}

// Host memory that kernels reach by its address.
class registered_memory {
public:
    registered_memory(void* data, std::uint64_t bytes, unsigned flags) : data_(data) {
        require_cuda(cudaHostRegister(data, bytes, flags | cudaHostRegisterMapped),
                     "registering " + format_size(bytes) + " of host memory");
    }
    ~registered_memory() { cudaHostUnregister(data_); }
    registered_memory(const registered_memory&) = delete;
    registered_memory& operator=(const registered_memory&) = delete;

private:
    void* data_;
};

// Host memory that kernels and copies reach, in huge pages: with small ones kernels would be bound
// by their translation. It is no memory of CUDA's own, so the kernel can pin it for reads too.
class huge_host_memory {
public:
    explicit huge_host_memory(std::uint64_t bytes)
        : memory_(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS) {
        ::madvise(memory_.as<void>(), bytes, MADV_HUGEPAGE);
        std::memset(memory_.as<void>(), 1, bytes);
        registered_.emplace(memory_.as<void>(), bytes, 0);
    }
    [[nodiscard]] std::byte* get() const { return memory_.as<std::byte>(); }

private:
    mapped_memory memory_;
    std::optional<registered_memory> registered_;
};

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
