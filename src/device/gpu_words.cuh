// Words of device memory that only the host writes: entries, window words, the abort word; and a
// few that it looks at while groups change them.
//
// They go by a stream of their own. A call of the host on the device may hold all the others until
// a service thread has answered its kernel, and that thread may have a word to write before it
// answers.
#pragma once

#include <cstdint>
#include <cstring>
#include <mutex>

#include <cuda_runtime.h>

#include "device/gpu_context.cuh"

namespace penstock::host {

// Thread-safe. The caller has made the device current (device_guard).
class gpu_words {
public:
    static constexpr std::uint64_t most_bytes = 64;

    gpu_words() = default;
    gpu_words(const gpu_words&) = delete;
    gpu_words& operator=(const gpu_words&) = delete;

    // Words that groups change and the host looks at in between.
    static constexpr std::uint64_t most_looked_at = 4096;

    // cudaErrorMemoryAllocation also if `memory` has none.
    cudaError_t init(gpu_memory& memory) {
        pinned_ = memory.shared_bytes(most_looked_at);
        return pinned_ == nullptr ? cudaErrorMemoryAllocation
                                  : cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    }

    // Up to most_bytes. They are on the device when it returns.
    cudaError_t write(void* to, const void* from, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        std::memcpy(pinned_, from, bytes);
        const cudaError_t code =
            cudaMemcpyAsync(to, pinned_, bytes, cudaMemcpyHostToDevice, stream_);
        return code == cudaSuccess ? cudaStreamSynchronize(stream_) : code;
    }

    // Up to most_looked_at. It begins after every write() that has returned.
    cudaError_t look(void* to, const void* from, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        cudaError_t code = cudaMemcpyAsync(pinned_, from, bytes, cudaMemcpyDeviceToHost, stream_);
        if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
        if (code == cudaSuccess) std::memcpy(to, pinned_, bytes);
        return code;
    }

    // To be called before it is destroyed.
    void end() {
        if (stream_ != nullptr) cudaStreamDestroy(stream_);
        stream_ = nullptr;
    }

private:
    std::mutex mutex_;
    cudaStream_t stream_ = nullptr;
    void* pinned_ = nullptr;
};

}  // namespace penstock::host
