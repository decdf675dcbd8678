// Numbers by Zipf's law, drawn by a kernel.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"
#include "penstock/file.hpp"

namespace penstock::bench {

// Rows by Zipf's law with 0.99, the n-th of them being any row of the table: rejection-inversion
// (Hörmann, Derflinger, Rejection-inversion to generate variates from monotone discrete
// distributions, 1996).
struct choose_zipf {
    std::int64_t* numbers;
    std::uint64_t rows, seed;
    bool each_once = false;  // the ranks take all rows, and not some of them twice

    static constexpr double exponent = 0.99, rest = 1 - exponent;
    __device__ static double integral(double x) { return (pow(x, rest) - 1) / rest; }
    __device__ static double inverse(double y) { return pow(1 + y * rest, 1 / rest); }

    template <typename Group>
    __device__ void operator()(const Group&, const runtime_ref&, std::uint64_t i) const {
        const double low = integral(1.5) - 1, high = integral(static_cast<double>(rows) + 0.5),
                     sure = 2 - inverse(integral(2.5) - pow(2.0, -exponent));
        std::uint64_t drawn = mix64(i + seed * 0x9e3779b97f4a7c15ull);
        for (;;) {
            drawn = mix64(drawn + 0x9e3779b97f4a7c15ull);
            const double u = high + static_cast<double>(drawn >> 11) * 0x1p-53 * (low - high),
                         x = inverse(u),
                         rank = fmin(fmax(floor(x + 0.5), 1.0), static_cast<double>(rows));
            if (rank - x > sure && u < integral(rank + 0.5) - pow(rank, -exponent)) continue;
            constexpr std::uint64_t prime = 2654435761;
            const auto n = static_cast<std::uint64_t>(rank);
            numbers[i] = static_cast<std::int64_t>((each_once ? n * prime : mix64(n)) % rows);
            return;
        }
    }
};

}  // namespace penstock::bench
