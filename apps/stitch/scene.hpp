// The scene of made tiles: whole numbers, so that every machine makes the same. docs/apps/stitch.md
// has the formula.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"

namespace penstock::stitch {

// From 0 up to a quarter of period² and down again.
constexpr std::uint32_t wave(std::uint64_t t, std::uint32_t period) {
    const auto u = static_cast<std::uint32_t>(t % period);
    return u * (period - u);
}

// What does not change along a row or column, and what lies along diagonals, so that a pixel takes
// three additions and a product.
constexpr std::uint32_t scene_across(std::uint64_t x) { return wave(x, 509) >> 8; }  // to 253
constexpr std::uint32_t scene_down(std::uint64_t y) { return wave(y, 383) >> 7; }    // to 286
constexpr std::uint32_t scene_along(std::uint64_t diagonal) {
    return wave(diagonal, 97);
}  // to 2352

constexpr std::uint32_t scene_dark = 400;

// Noise of four neighbouring pixels, 6 bits each, the lowest first; `place`: number of the first in
// its tile, divided by 4.
constexpr std::uint64_t noise_of(std::uint64_t start, std::uint64_t place) {
    return mix64(start + place);
}

}  // namespace penstock::stitch
