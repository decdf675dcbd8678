// What the tests of the parts of penstock-matrix share: the kernels of this processor, and numbers.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "common/vectors.hpp"
#include "lane_kernels.hpp"

namespace penstock::matrix {

inline std::vector<const lane_kernels*> kernels_here() {
    std::vector<const lane_kernels*> out{&plain_kernels};
#if defined(__x86_64__)
    if (apps::vectors_here() != apps::vectors::none) out.push_back(&avx2_kernels);
    if (apps::vectors_here() == apps::vectors::avx512) out.push_back(&avx512_kernels);
#endif
    return out;
}

// Numbers of every size, so that the order of the additions shows in the bits.
inline std::vector<float> random_numbers(std::size_t count, unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<float> out(count);
    for (float& number : out)
        number = std::ldexp(static_cast<float>(dice() % 65536), -static_cast<int>(dice() % 24)) *
                 (dice() % 2 == 0 ? 1.0f : -1.0f);
    return out;
}

}  // namespace penstock::matrix
