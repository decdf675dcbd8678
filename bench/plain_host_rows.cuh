// The rows that a plain kernel fetches from the host's memory, for comparison with windows.
#pragma once

#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#include "gather_rows.hpp"
#include "gpu.cuh"

namespace penstock::bench {

// Pinned memory in huge pages: with small ones the baseline would be bound by their translation.
class plain_host_rows {
public:
    plain_host_rows() = default;
    ~plain_host_rows() {
        if (registered_) cudaHostUnregister(data_);
        if (data_ != MAP_FAILED) ::munmap(data_, bytes_);
    }
    plain_host_rows(const plain_host_rows&) = delete;
    plain_host_rows& operator=(const plain_host_rows&) = delete;

    status make(std::uint64_t bytes) {
        if (status s = require_memory("host memory", bytes, available_host_bytes()); !s) return s;
        bytes_ = bytes;
        data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data_ == MAP_FAILED)
            return {-ENOMEM,
                    format_size(bytes) + " of host memory could not be had; give a smaller --file"};
        ::madvise(data_, bytes, MADV_HUGEPAGE);
        std::memset(data_, 1, bytes);
        const status s = cuda_status(cudaHostRegister(data_, bytes, cudaHostRegisterMapped),
                                     "pinning " + format_size(bytes) + " of host memory");
        registered_ = s.ok();
        return s;
    }
    [[nodiscard]] const uint4* data() const { return static_cast<const uint4*>(data_); }

private:
    void* data_ = MAP_FAILED;
    std::uint64_t bytes_ = 0;
    bool registered_ = false;
};

}  // namespace penstock::bench
