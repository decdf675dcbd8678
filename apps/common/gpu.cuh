// What the methods in plain CUDA share: the choice of a GPU, its last error, owners of what CUDA
// hands out, and how many thread blocks of a kernel run at once. Only in programs with CUDA.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>

#include "penstock/error.hpp"

namespace penstock::apps {

// The last CUDA error.
inline status cuda_error(int code = -EIO, const char* cure = "is the GPU in order?") {
    return {code,
            std::string("--method cuda: ") + cudaGetErrorString(cudaGetLastError()) + "; " + cure};
}

// What a function of CUDA returned to the step that called it. `room` is the cure where memory ran
// out.
inline status cuda_status(cudaError_t code, const std::string& step,
                          const char* room = "is the GPU in order?") {
    if (code == cudaSuccess) return {};
    cudaGetLastError();
    const bool no_room = code == cudaErrorMemoryAllocation;
    return {no_room ? -ENOMEM : -EIO, step + ": " + cudaGetErrorString(code) + "; " +
                                          (no_room ? room : "is the GPU in order?")};
}

inline status no_gpu_memory() { return cuda_error(-ENOMEM, "free some memory of the GPU"); }

// Makes this thread use the GPU. -ENODEV and a message if it is not there.
inline status use_gpu(int device) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && device < devices &&
        cudaSetDevice(device) == cudaSuccess)
        return {};
    cudaGetLastError();
    return {-ENODEV, "--method cuda: there is no GPU " + std::to_string(device) +
                         " here; use --method penstock or cpu"};
}

// Moves managed memory to a GPU, or to the host, and waits until it is there.
inline cudaError_t prefetch(const void* memory, std::uint64_t bytes, bool to_host, int device) {
#if CUDART_VERSION >= 13000
    cudaMemLocation where{};
    where.type = to_host ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    where.id = to_host ? 0 : device;
    const cudaError_t code = cudaMemPrefetchAsync(memory, bytes, where, 0, nullptr);
#else
    const cudaError_t code =
        cudaMemPrefetchAsync(memory, bytes, to_host ? cudaCpuDeviceId : device, nullptr);
#endif
    return code == cudaSuccess ? cudaStreamSynchronize(nullptr) : code;
}

// Owns a handle or memory of CUDA: null until a function of CUDA has filled it by its address, and
// given back by `Release` at the end. To be filled once.
template <typename Handle, auto Release>
class gpu_owner {
public:
    gpu_owner() = default;
    gpu_owner(const gpu_owner&) = delete;
    gpu_owner& operator=(const gpu_owner&) = delete;
    ~gpu_owner() {
        if (handle_ != nullptr) Release(handle_);
    }
    Handle* operator&() { return &handle_; }
    operator Handle() const { return handle_; }

private:
    Handle handle_ = nullptr;
};

using gpu_stream = gpu_owner<cudaStream_t, cudaStreamDestroy>;
using gpu_event = gpu_owner<cudaEvent_t, cudaEventDestroy>;
template <typename T>
using gpu_array = gpu_owner<T*, cudaFree>;
template <typename T>
using pinned_array = gpu_owner<T*, cudaFreeHost>;

// How many blocks of the kernel run at once: at least 1. Asking also loads the kernel, before any
// clock runs.
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
