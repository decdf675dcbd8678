// Random numbers that a seed and a place alone decide, so that any thread can make any part of a
// file.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"

namespace penstock::apps {

// Where the numbers of part `part` of what the seed stands for begin.
inline std::uint64_t random_start(std::uint64_t seed, std::uint64_t part) {
    return mix64(seed + part);
}

// The number at `place`, evenly from 0 to 1.
inline float even_number(std::uint64_t start, std::uint64_t place) {
    return static_cast<float>(mix64(start + place) >> 40) * (1.0f / (1u << 24));
}

}  // namespace penstock::apps
