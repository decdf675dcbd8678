// What the examples share: a runtime made from the environment, and memory that host and device can
// both reach.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <penstock/runtime.hpp>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

// The options are the PENSTOCK_* variables. Null after a message if there can be no runtime.
inline std::unique_ptr<penstock::runtime> make_runtime(bool writable = false) {
    penstock::options settings;
    std::unique_ptr<penstock::runtime> rt;
    penstock::status made = penstock::options::from_environment(settings);
    settings.writable = settings.writable || writable;
    if (made.ok()) made = penstock::runtime::make(settings, rt);
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.message.c_str());
    return rt;
}

// `count` values, all zero, that the host and the runtime's device can reach.
template <typename T>
class shared_array {
public:
    shared_array(const penstock::runtime& rt, std::uint64_t count)
        : on_gpu_(rt.where() == penstock::backend::gpu) {
        const std::uint64_t bytes = count * sizeof(T) + 1;
        void* memory = nullptr;
#if defined(__CUDACC__)
        if (on_gpu_ && cudaMallocManaged(&memory, bytes) != cudaSuccess) memory = nullptr;
#endif
        if (!on_gpu_) memory = std::malloc(bytes);
        if (memory == nullptr) {
            std::fprintf(stderr, "no memory for %llu bytes\n",
                         static_cast<unsigned long long>(bytes));
            std::exit(1);
        }
        std::memset(memory, 0, bytes);
        data_ = static_cast<T*>(memory);
    }
    ~shared_array() {
#if defined(__CUDACC__)
        if (on_gpu_) cudaFree(data_);
#endif
        if (!on_gpu_) std::free(data_);
    }
    shared_array(const shared_array&) = delete;
    shared_array& operator=(const shared_array&) = delete;

    [[nodiscard]] T* data() const { return data_; }
    const T& operator[](std::uint64_t i) const { return data_[i]; }

private:
    bool on_gpu_;
    T* data_ = nullptr;
};
