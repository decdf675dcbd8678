// Random numbers one after the other from a seed, the same everywhere.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"

namespace penstock::apps {

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

}  // namespace penstock::apps
