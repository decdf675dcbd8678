// One range of device addresses, a part of it backed by device memory and the rest by host memory,
// in pieces that can change places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/gpu_context.cuh"
#include "region/piece_heat.hpp"

namespace penstock::region {

// Its calls are made under the caller's device_guard, all but the destructor.
class gpu_range {
public:
    explicit gpu_range(const host::gpu_context& context) : context_(context) {}
    ~gpu_range();
    gpu_range(const gpu_range&) = delete;
    gpu_range& operator=(const gpu_range&) = delete;

    // `bytes` of which up to `on_device` are device memory, all zero; both in pieces of 2 MiB.
    // Falls back on host memory where the device has none left. False: `why`.
    bool take(std::uint64_t bytes, std::uint64_t on_device, std::string& why);
    [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
    [[nodiscard]] std::uint64_t bytes_on_device() const { return on_device_; }

    // Brings the part's pieces into device memory, in order, for others that go to host memory: of
    // those outside of it what was preferred longest ago. Nothing may use the range meanwhile. How
    // many bytes of the part lie in device memory then, or a negative errno: -ENOMEM, the host has
    // no room for one piece more; -EIO, after which the range is not to be used any more.
    std::int64_t prefer(std::uint64_t begin, std::uint64_t end);

    // Lets kernels of another device read it. Only if all of it is device memory, so that no piece
    // changes its place.
    CUresult show_to(int device);

    // False after an exchange that the driver ended half way: a kernel that touches the range would
    // lose the context.
    [[nodiscard]] bool is_whole() const { return is_whole_; }
    // Some of it lies in host memory.
    [[nodiscard]] bool is_split() const { return on_device_ < bytes_; }
    // Pages of it, in order, that were used (piece_heat.hpp); and: hot pieces come to device
    // memory, for cold ones that were never preferred. Nothing may use the range meanwhile. How
    // many bytes came, or a negative errno as of prefer.
    void used(const std::vector<std::uint64_t>& numbers);
    std::int64_t promote();

private:
    struct piece {
        CUmemGenericAllocationHandle memory;
        std::uint64_t at, bytes;
        bool on_device;
        std::uint64_t preferred;  // when, in the order of the calls; 0: never
    };
    bool create(std::uint64_t bytes, bool on_device, CUmemGenericAllocationHandle& out);
    bool map(CUdeviceptr where, std::uint64_t bytes, CUmemGenericAllocationHandle memory);
    bool back(std::uint64_t at, std::uint64_t bytes, bool on_device);
    bool make_spare();
    bool exchange(piece& near, piece& far);

    const host::gpu_context context_;
    cudaStream_t stream_ = nullptr;
    CUresult refusal_ = CUDA_SUCCESS;  // why memory was not to be had, the last time
    CUdeviceptr address_ = 0;
    std::uint64_t bytes_ = 0, on_device_ = 0;
    bool is_whole_ = true;
    std::vector<piece> pieces_;
    // Host memory by which two pieces change places, of the largest size of a piece that does; at
    // addresses of its own.
    CUmemGenericAllocationHandle spare_ = 0;
    CUdeviceptr spare_address_ = 0;
    std::uint64_t preferences_ = 0;
    piece_heat heat_;  // piece for piece, if it is split
};

}  // namespace penstock::region
