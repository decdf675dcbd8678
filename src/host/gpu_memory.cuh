// CUDA memory for the runtime, and what every CUDA call here goes through.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::host {

// Makes a device current for this thread and puts the old one back.
class device_guard {
public:
    explicit device_guard(int device) {
        cudaGetDevice(&before_);
        changed_ = before_ != device;
        if (changed_) cudaSetDevice(device);
    }
    ~device_guard() {
        if (changed_) cudaSetDevice(before_);
    }
    device_guard(const device_guard&) = delete;
    device_guard& operator=(const device_guard&) = delete;

private:
    int before_ = 0;
    bool changed_ = false;
};

// Owns device and pinned memory; frees all of it at the end, ignoring errors of a device that a kernel has broken.
// Allocation blocks while a kernel waits for the host, so all of it happens when the runtime is created.
class gpu_memory {
public:
    explicit gpu_memory(int device) : device_(device) {}
    ~gpu_memory();
    gpu_memory(const gpu_memory&) = delete;
    gpu_memory& operator=(const gpu_memory&) = delete;

    void* device_bytes(std::uint64_t bytes);  // zeroed, or null
    void* shared_bytes(std::uint64_t bytes);  // pinned, mapped at the same address on both sides, zeroed, or null

private:
    void* registered_bytes(std::uint64_t bytes);

    struct mapped {
        void* address;
        std::uint64_t bytes;
    };
    int device_;
    std::vector<void*> device_pieces_;
    std::vector<void*> host_pieces_;
    std::vector<mapped> registered_pieces_;
};

}  // namespace penstock::host
