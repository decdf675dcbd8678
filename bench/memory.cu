#include "memory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#if defined(PENSTOCK_WITH_CUDA)
#include "gpu.cuh"
#endif

namespace penstock::bench {

memory::~memory() {
    if (data_ == nullptr) return;
#if defined(PENSTOCK_WITH_CUDA)
    if (where_ == backend::gpu) {
        cudaFree(data_);
        return;
    }
#endif
    std::free(data_);
}

status memory::make(backend where, std::uint64_t bytes) {
    where_ = where;
#if defined(PENSTOCK_WITH_CUDA)
    if (where == backend::gpu) {
        if (status s =
                cuda_status(cudaMalloc(&data_, bytes), format_size(bytes) + " of device memory");
            !s)
            return s;
        return cuda_status(cudaMemset(data_, 0, bytes), "memory");
    }
#endif
    const std::uint64_t rounded = (bytes + 4095) / 4096 * 4096;
    data_ = std::aligned_alloc(4096, rounded);
    if (data_ == nullptr)
        return {-ENOMEM, format_size(bytes) + " of memory could not be had; give a smaller --file"};
    std::memset(data_, 0, rounded);
    return {};
}

status memory::copy_out(void* to, std::uint64_t bytes) const {
#if defined(PENSTOCK_WITH_CUDA)
    if (where_ == backend::gpu)
        return cuda_status(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost),
                           "copy from the device");
#endif
    std::memcpy(to, data_, bytes);
    return {};
}

}  // namespace penstock::bench
