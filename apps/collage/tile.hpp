// What a tile is and how its histogram, and the coarse features that are hashed, are counted. The
// same on GPU and CPU.
#pragma once

#include <cstdint>

#include "penstock/base/macros.hpp"

namespace penstock::collage {

inline constexpr std::uint32_t tile_side = 32;  // pixels
inline constexpr std::uint32_t tile_bytes = tile_side * tile_side * 3;
inline constexpr std::uint32_t bins = 3 * 256;  // red, then green, then blue
inline constexpr std::uint32_t record_bytes = bins * sizeof(std::uint32_t);  // one histogram
// From one histogram to the next in its file.
inline constexpr std::uint32_t record_stride_bytes = 4096;
inline constexpr std::uint32_t bins_per_feature = 8;
inline constexpr std::uint32_t features = bins / bins_per_feature;

// Counts of a whole tile in memory, `stride_bytes` from row to row.
inline void count_tile(const std::uint8_t* rgb, std::uint64_t stride_bytes,
                       std::uint32_t* histogram) {
    for (std::uint32_t i = 0; i < bins; ++i) histogram[i] = 0;
    for (std::uint32_t y = 0; y < tile_side; ++y, rgb += stride_bytes)
        for (std::uint32_t x = 0; x < tile_side * 3; x += 3) {
            ++histogram[rgb[x]];
            ++histogram[256 + rgb[x + 1]];
            ++histogram[512 + rgb[x + 2]];
        }
}

// One feature: how many pixels fall into its eight neighbouring bins.
PENSTOCK_HD PENSTOCK_INLINE std::uint16_t feature_of(const std::uint32_t* histogram,
                                                     std::uint32_t feature) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < bins_per_feature; ++i)
        sum += histogram[feature * bins_per_feature + i];
    return static_cast<std::uint16_t>(sum);
}

}  // namespace penstock::collage
