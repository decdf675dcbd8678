// What the device tests share. They need a GPU; without one each test is skipped, and says so.
#pragma once

#include <cuda_runtime.h>

#include "penstock/group/gpu_groups.cuh"
#include "unit/support.hpp"

namespace penstock::test {

inline bool has_gpu() {
    int count = 0;
    const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
    if (!found) cudaGetLastError();
    return found;
}

#define PENSTOCK_NEEDS_GPU() \
    if (!has_gpu()) GTEST_SKIP() << "no GPU in this machine"

inline options gpu_options(const temporary_folder& folder) {
    options o = small_options(folder);
    o.where = backend::gpu;
    o.service_threads = 2;
    o.staging_bytes = 4 << 20;
    o.host_wait_ms = 5000;
    return o;
}

// Device memory for counters and the like, visible to the host after synchronisation; zeroed.
template <typename T>
class shared_array {
public:
    explicit shared_array(std::size_t count) {
        if (cudaHostAlloc(&data_, count * sizeof(T), cudaHostAllocMapped) != cudaSuccess)
            std::abort();
        std::memset(static_cast<void*>(data_), 0, count * sizeof(T));
    }
    ~shared_array() { cudaFreeHost(data_); }
    shared_array(const shared_array&) = delete;
    shared_array& operator=(const shared_array&) = delete;
    T* get() const { return data_; }
    T& operator[](std::size_t i) const { return data_[i]; }

private:
    T* data_ = nullptr;
};

// Counters that kernels add to; in device memory, because the GPU's atomics on host memory are not
// for sharing.
class device_counters {
public:
    explicit device_counters(int count) : count_(count) {
        if (cudaMalloc(&data_, sizeof(unsigned long long) * count) != cudaSuccess) std::abort();
        cudaMemset(data_, 0, sizeof(unsigned long long) * count);
        cudaStreamSynchronize(nullptr);  // the runtime's stream does not wait for the zeros
    }
    ~device_counters() { cudaFree(data_); }
    device_counters(const device_counters&) = delete;
    device_counters& operator=(const device_counters&) = delete;
    unsigned long long* get() const { return data_; }
    std::vector<unsigned long long> read() const {
        std::vector<unsigned long long> out(count_);
        cudaMemcpy(out.data(), data_, sizeof(unsigned long long) * count_, cudaMemcpyDeviceToHost);
        return out;
    }

private:
    unsigned long long* data_ = nullptr;
    int count_;
};

// A name a kernel can read.
class device_text {
public:
    explicit device_text(const std::string& text) : bytes_(text.size() + 1) {
        std::memcpy(bytes_.get(), text.c_str(), text.size() + 1);
    }
    const char* get() const { return bytes_.get(); }

private:
    shared_array<char> bytes_;
};

}  // namespace penstock::test
