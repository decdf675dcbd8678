// CUDA memory for the runtime: of the device, and of the host where the device reaches it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/gpu_context.cuh"

namespace penstock::host {

// Owns device and pinned memory; frees all of it at the end, ignoring errors of a device that a
// kernel has broken. Allocation blocks while a kernel waits for the host, so all of it happens when
// the runtime is created.
class gpu_memory {
public:
    explicit gpu_memory(int device) : context_(gpu_context::of(device)) {}
    ~gpu_memory();
    gpu_memory(const gpu_memory&) = delete;
    gpu_memory& operator=(const gpu_memory&) = delete;

    void* device_bytes(std::uint64_t bytes);  // zeroed, or null
    // Pinned, at the same address on both sides, zeroed, or null. It is ordinary memory that was
    // registered: after cudaDeviceReset the host may still use it. A child of fork() does not have
    // it.
    void* shared_bytes(std::uint64_t bytes);
    // After a null: how much of what was refused, by which error, and how much is free.
    [[nodiscard]] const std::string& shortage() const { return shortage_; }

private:
    bool clear(CUdeviceptr address, std::uint64_t bytes);
    void* refused(std::uint64_t bytes, const char* what, const std::string& error);

    struct mapped {
        void* address;
        std::uint64_t bytes;
    };
    const gpu_context context_;
    cudaStream_t stream_ = nullptr;  // for clearing; made when it is first needed
    std::vector<CUdeviceptr> device_pieces_;
    std::vector<mapped> shared_pieces_;
    std::string shortage_;
};

}  // namespace penstock::host
