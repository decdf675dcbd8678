// One range of device addresses, the first part of it backed by device memory and the rest by host memory.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock::region {

class gpu_range {
public:
    explicit gpu_range(int device) : device_(device) {}
    ~gpu_range();
    gpu_range(const gpu_range&) = delete;
    gpu_range& operator=(const gpu_range&) = delete;

    // `bytes` of which up to `on_device` are device memory, all zero; both in pieces of 2 MiB. Falls back on host memory where the device has none left. False: `why`.
    bool take(std::uint64_t bytes, std::uint64_t on_device, std::string& why);
    [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
    [[nodiscard]] std::uint64_t bytes_on_device() const { return on_device_; }

private:
    struct piece {
        CUmemGenericAllocationHandle memory;
        std::uint64_t at, bytes;
    };
    bool back(std::uint64_t at, std::uint64_t bytes, bool on_device);

    const int device_;
    CUdeviceptr address_ = 0;
    std::uint64_t bytes_ = 0, on_device_ = 0;
    std::vector<piece> pieces_;
};

}  // namespace penstock::region
