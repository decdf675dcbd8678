// Squared Euclidean distance of two histograms, in whole numbers: at most 6,291,456, so it fits the
// upper half of a word whose lower half is the tile's number, and the least such word is the best
// tile.
#pragma once

#include <cstdint>

#include "penstock/base/macros.hpp"
#include "library.hpp"

namespace penstock::collage {

// One bin's part.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t squared_difference(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t d = a - b;  // modulo 2^32; its square is right all the same
#if defined(PENSTOCK_COLLAGE_WRONG_DISTANCE)
    return d > 1u << 31 ? 0u - d
                        : d;  // only in the program that the tests must find out: not squared
#else
    return d * d;
#endif
}

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t score_of(std::uint32_t distance, std::uint32_t id) {
    return std::uint64_t{distance} << 32 | id;
}

inline constexpr std::uint64_t no_score = ~std::uint64_t{0};

// On a CPU: over `count` bins, by one loop that the compiler turns into vector code for each kind
// of processor.
std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count);

// "AVX-512", "AVX2" or "SSE2": what distance_of uses here.
const char* vector_name();

}  // namespace penstock::collage
