// Rows by their numbers from plain memory that the device reaches: what gathers and tables are
// measured against.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "gpu.cuh"

namespace penstock::bench {

// All 16-byte units of all rows over all threads, four in flight in each.
template <typename Number>
__global__ void __launch_bounds__(256, 4)
    plain_rows(const uint4* plain, std::uint32_t unit_shift, const Number* numbers,
               std::uint64_t count, uint4* out) {
    const std::uint64_t units = count << unit_shift, threads = std::uint64_t{gridDim.x} * 256,
                        mask = (1u << unit_shift) - 1;
    const auto unit = [&](std::uint64_t u) {
        return __ldcg(plain + (static_cast<std::uint64_t>(numbers[u >> unit_shift]) << unit_shift) +
                      (u & mask));
    };
    std::uint64_t u = std::uint64_t{blockIdx.x} * 256 + threadIdx.x;
    for (; u + 3 * threads < units; u += 4 * threads) {
        const uint4 a = unit(u), b = unit(u + threads), c = unit(u + 2 * threads),
                    d = unit(u + 3 * threads);
        out[u] = a, out[u + threads] = b, out[u + 2 * threads] = c, out[u + 3 * threads] = d;
    }
    for (; u < units; u += threads) out[u] = unit(u);
}

template <typename Number>
void launch_plain(const std::byte* plain, std::uint64_t row_bytes, const Number* numbers,
                  std::uint64_t count, void* out, cudaStream_t stream = nullptr) {
    const auto shift = static_cast<std::uint32_t>(__builtin_ctzll(row_bytes / 16));
    const auto blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        full_grid(plain_rows<Number>), std::max<std::uint64_t>(1, (count << shift) / 256)));
    plain_rows<<<blocks, 256, 0, stream>>>(reinterpret_cast<const uint4*>(plain), shift, numbers,
                                           count, static_cast<uint4*>(out));
}

}  // namespace penstock::bench
