// Rows of a convolution on a CPU: loops of whole numbers that the compiler turns into vector code,
// so every kind of processor finds the same bits.
#pragma once

#include <cstdint>

#include "sharpen.hpp"

namespace penstock::stitch {

// The widest row that is asked for.
inline constexpr std::uint32_t most_columns = 1024;

// The loops, for the processor of the caller.

// Row `out` from the rows above, at and below. Each has `left` pixels (0 or 1) before its first and
// `right` behind its last.
[[gnu::always_inline]] inline void sharpen_row_inline(const std::uint16_t* above,
                                                      const std::uint16_t* at,
                                                      const std::uint16_t* below,
                                                      std::uint16_t* out, std::uint32_t count,
                                                      bool left, bool right) {
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

// A row as the file has it.
[[gnu::always_inline]] inline void store_row_inline(const std::uint16_t* from, std::uint16_t* to,
                                                    std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) to[i] = swapped(from[i]);
}

// The same, compiled for several kinds of processors, of which this one's is chosen when the
// program starts; and which that is.
void sharpen_row(const std::uint16_t* above, const std::uint16_t* at, const std::uint16_t* below,
                 std::uint16_t* out, std::uint32_t count, bool left, bool right);
void store_row(const std::uint16_t* from, std::uint16_t* to, std::uint32_t count);
const char* row_code_name();

}  // namespace penstock::stitch
