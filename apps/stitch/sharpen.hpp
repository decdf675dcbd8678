// The arithmetic of sharpening, the same for CPU and GPU: whole numbers, so that both find the same
// bits.
//
// A convolution of 3 by 3: a pixel gets a sixteenth of what it differs from the mean of its
// surroundings, weighed 1 2 1, 2 4 2, 1 2 1. It is applied to a tile, of which the outermost pixels
// count as if they went on outside.
#pragma once

#include <cstdint>

#include "layout.hpp"
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

}  // namespace penstock::stitch
