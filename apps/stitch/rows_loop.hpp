// A row of a convolution: one loop, compiled once for each kind of processor (rows_*.cpp), which
// the type tells apart.
#pragma once

#include "sharpen_rows.hpp"

namespace penstock::stitch {

template <typename Processor>
void sharpen_row_on(const std::uint16_t* above, const std::uint16_t* at, const std::uint16_t* below,
                    std::uint16_t* out, std::uint32_t count, bool left, bool right) {
    alignas(64) std::int32_t sums[most_columns + 2];
    std::int32_t* const of = sums + 1;
    const auto sum = [&](std::int64_t i) {
        return std::int32_t{above[i]} + 2 * std::int32_t{at[i]} + std::int32_t{below[i]};
    };
    for (std::uint32_t i = 0; i < count; ++i)
        of[i] = std::int32_t{above[i]} + 2 * std::int32_t{at[i]} + std::int32_t{below[i]};
    of[-1] = left ? sum(-1) : of[0];
    of[count] = right ? sum(count) : of[count - 1];
    for (std::uint32_t i = 0; i < count; ++i)
        out[i] = sharpened(at[i], sums[i] + 2 * sums[i + 1] + sums[i + 2]);
}

template <typename Processor>
void store_row_on(const std::uint16_t* from, std::uint16_t* to, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) to[i] = swapped(from[i]);
}

}  // namespace penstock::stitch
