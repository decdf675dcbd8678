// CUB's sum of 64-bit words, the words that are summed, and the bus that they go over.
#pragma once

#include <cub/device/device_reduce.cuh>

#include "cases.hpp"
#include "gpu.cuh"

namespace penstock::bench {

inline constexpr std::uint64_t most_cub_bytes = 16 * mib;

// What CUB needs besides its input.
class reduction {
public:
    // Seconds of one sum over `count` elements; the sum is kept.
    template <typename Iterator>
    double seconds(Iterator first, std::uint64_t count) const {
        std::size_t bytes = 0;
        const auto n = static_cast<std::int64_t>(count);
        require_cuda(cub::DeviceReduce::Sum(nullptr, bytes, first, sum_.as(), n), "size of a sum");
        expect(bytes <= most_cub_bytes, "CUB wants more memory than the case has");
        return kernel_seconds(
            [&] { cub::DeviceReduce::Sum(memory_.as<void>(), bytes, first, sum_.as(), n); });
    }
    [[nodiscard]] std::uint64_t sum() const { return sum_.number(); }

private:
    memory memory_ = memory(backend::gpu, most_cub_bytes), sum_ = memory(backend::gpu, 8);
};

// The words of the file, in memory that kernels reach.
inline void fill(const opened_file& file, std::uint64_t* words) {
    constexpr std::uint64_t groups = 4096;
    run_kernel<width::warp>(*file.rt, groups, fill_words{words, file.bytes / 8, groups});
}

// The copy engine's time for pinned memory, piece by piece to the same memory of the device.
inline constexpr std::uint64_t copied_at_once = 256 * mib;
inline double seconds_of_copies(const std::byte* pinned, std::uint64_t bytes,
                                const memory& target) {
    return kernel_seconds([&] {
        for (std::uint64_t at = 0; at < bytes; at += copied_at_once)
            require_cuda(
                cudaMemcpyAsync(target.as<void>(), pinned + at,
                                std::min(copied_at_once, bytes - at), cudaMemcpyHostToDevice),
                "copy");
    });
}

}  // namespace penstock::bench
