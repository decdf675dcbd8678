// Random numbers that a seed alone decides: at a place, one after the other, or a file full.
#pragma once

#include <cstdint>
#include <string>

#include "common/files.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::apps {

// Random numbers that a seed and a place alone decide, so that any thread can make any part of a
// file.

// Where the numbers of part `part` of what the seed stands for begin.
inline std::uint64_t random_start(std::uint64_t seed, std::uint64_t part) {
    return mix64(seed + part);
}

// The number at `place`, evenly from 0 to 1.
inline float even_number(std::uint64_t start, std::uint64_t place) {
    return static_cast<float>(mix64(start + place) >> 40) * (1.0f / (1u << 24));
}

// Random numbers one after the other from a seed, the same everywhere.
class dice {
public:
    explicit dice(std::uint64_t seed) : state_(mix64(seed + 1)) {}

    std::uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15ull); }
    // Below `limit`, which is far below 2^64.
    template <typename Integer>
    Integer below(Integer limit) {
        return static_cast<Integer>(next() % limit);
    }
    // Evenly from 0 to 1, without 1.
    double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

private:
    std::uint64_t state_;
};

// Files of random numbers that a seed alone decides.

// `count` numbers even from -1 to 1, from random_start on: all threads
// make and write pieces of their own.
status fill_with_numbers(const output_file& file, std::uint64_t start, std::uint64_t count,
                         std::uint32_t threads);

// By name, and by where the names lead to if both are there.
bool same_file(const std::string& one, const std::string& other);

}  // namespace penstock::apps
