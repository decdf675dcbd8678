// The arithmetic of sharpening, the same for CPU and GPU: whole numbers, so that both find the same
// bits.
//
// A convolution of 3 by 3: a pixel gets a sixteenth of what it differs from the mean of its
// surroundings, weighed 1 2 1, 2 4 2, 1 2 1. It is applied to a tile, of which the outermost pixels
// count as if they went on outside.
#pragma once

#include <cstdint>

#include "tile_set.hpp"
#include "penstock/base/macros.hpp"

namespace penstock::stitch {

inline constexpr std::uint32_t most_convolutions = 32;

// `around`: the weighed sum of the nine pixels.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint16_t sharpened(std::int32_t pixel,
                                                              std::int32_t around) {
    const std::int32_t value = pixel + ((16 * pixel - around + 128) >> 8);
    return static_cast<std::uint16_t>(value < 0 ? 0 : value > 65535 ? 65535 : value);
}

// As PGM has it: the high byte first.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint16_t swapped(std::uint16_t pixel) {
    return static_cast<std::uint16_t>(pixel << 8 | pixel >> 8);
}

// Part of a tile, half open.
struct area {
    std::uint32_t left, top, right, bottom;
    [[nodiscard]] constexpr PENSTOCK_HD std::uint32_t width() const { return right - left; }
    [[nodiscard]] constexpr PENSTOCK_HD std::uint32_t height() const { return bottom - top; }
};

// The piece and what lies around it in the tile, up to `margin` pixels away: what must be known so
// that so many convolutions of the piece are right. At its borders an area has either more of the
// tile outside than is asked for, or the tile's own border.
constexpr PENSTOCK_HD PENSTOCK_INLINE area area_of(const piece& p, std::uint32_t margin,
                                                   std::uint32_t tile_width,
                                                   std::uint32_t tile_height) {
    const std::uint32_t right = p.left + p.width + margin, bottom = p.top + p.height + margin;
    return {p.left < margin ? 0 : p.left - margin, p.top < margin ? 0 : p.top - margin,
            right < tile_width ? right : tile_width, bottom < tile_height ? bottom : tile_height};
}

// Rows of a convolution on a CPU: loops that the compiler turns into vector code.

// The widest row that is asked for.
inline constexpr std::uint32_t most_columns = 1024;

// Compiled for the processor of the caller.

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
