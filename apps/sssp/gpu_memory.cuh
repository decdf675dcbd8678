// Memory of a GPU, or that a GPU reaches, that is given back by itself; and CUDA's errors as
// messages. Only in programs with CUDA.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cuda_runtime.h>
#include <string>

#include "penstock/error.hpp"

namespace penstock::sssp {

// `step` names what failed.
inline status check(cudaError_t code, const char* step) {
    if (code == cudaSuccess) return {};
    cudaGetLastError();
    return {-EIO, std::string(step) + ": " + cudaGetErrorString(code) + "; is the GPU in order?"};
}

template <cudaError_t (*Allocate)(void**, std::size_t), cudaError_t (*Free)(void*)>
class owned_bytes {
public:
    owned_bytes() = default;
    ~owned_bytes() { Free(at_); }
    owned_bytes(const owned_bytes&) = delete;
    owned_bytes& operator=(const owned_bytes&) = delete;

    // Once. False if there is not enough.
    bool allocate(std::uint64_t bytes) {
        if (Allocate(&at_, bytes == 0 ? 1 : bytes) == cudaSuccess) return true;
        at_ = nullptr;
        cudaGetLastError();  // the failure is reported by the result, not by the next launch
        return false;
    }
    [[nodiscard]] void* get() const { return at_; }

private:
    void* at_ = nullptr;
};

inline cudaError_t allocate_device(void** out, std::size_t bytes) { return cudaMalloc(out, bytes); }
inline cudaError_t allocate_pinned(void** out, std::size_t bytes) {
    return cudaMallocHost(out, bytes);
}
inline cudaError_t allocate_managed(void** out, std::size_t bytes) {
    return cudaMallocManaged(out, bytes, cudaMemAttachGlobal);
}

using device_bytes = owned_bytes<allocate_device, cudaFree>;
using pinned_bytes = owned_bytes<allocate_pinned, cudaFreeHost>;
using managed_bytes = owned_bytes<allocate_managed, cudaFree>;

}  // namespace penstock::sssp
