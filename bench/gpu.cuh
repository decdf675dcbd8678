// What the cases on a GPU share: CUDA calls as status values, memory and events that go away with
// their scope.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>

#include "penstock/error.hpp"

namespace penstock::bench {

inline status cuda_status(cudaError_t code, const std::string& call) {
    if (code == cudaSuccess) return {};
    cudaGetLastError();
    return {code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            "CUDA, " + call + ": " + cudaGetErrorString(code) +
                (code == cudaErrorMemoryAllocation ? "; give a smaller --file" : "")};
}

// Memory of the device, or pinned memory of the host that the device can reach.
class gpu_memory {
public:
    gpu_memory() = default;
    ~gpu_memory() { free(); }
    gpu_memory(const gpu_memory&) = delete;
    gpu_memory& operator=(const gpu_memory&) = delete;

    status on_device(std::uint64_t bytes) {
        free();
        return cuda_status(cudaMalloc(&data_, bytes),
                           std::to_string(bytes) + " bytes of device memory");
    }
    status on_host(std::uint64_t bytes) {
        free();
        pinned_ = true;
        return cuda_status(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped),
                           std::to_string(bytes) + " bytes of pinned memory");
    }
    template <typename T>
    [[nodiscard]] T* as() const {
        return static_cast<T*>(data_);
    }

private:
    void free() {
        if (data_ != nullptr) pinned_ ? cudaFreeHost(data_) : cudaFree(data_);
        data_ = nullptr;
        pinned_ = false;
    }
    void* data_ = nullptr;
    bool pinned_ = false;
};

inline int multiprocessors() {
    int count = 0, device = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// Milliseconds that launch() kept the device busy, by its own events.
template <typename Launch>
status kernel_ms(const Launch& launch, float& ms) {
    cudaEvent_t begin = nullptr, end = nullptr;
    cudaError_t code = cudaEventCreate(&begin);
    if (code == cudaSuccess) code = cudaEventCreate(&end);
    if (code == cudaSuccess) code = cudaEventRecord(begin);
    if (code == cudaSuccess) {
        launch();
        code = cudaGetLastError();
    }
    if (code == cudaSuccess) code = cudaEventRecord(end);
    if (code == cudaSuccess) code = cudaEventSynchronize(end);
    if (code == cudaSuccess) code = cudaEventElapsedTime(&ms, begin, end);
    if (begin != nullptr) cudaEventDestroy(begin);
    if (end != nullptr) cudaEventDestroy(end);
    return cuda_status(code, "kernel");
}

}  // namespace penstock::bench
