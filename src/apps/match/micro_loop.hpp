// The loop of micro_kernel.hpp over vectors of one kind, for the files that are compiled for one kind of processor each.
#pragma once

#include <cstdint>

#include "micro_kernel.hpp"

namespace penstock::match {

namespace {

// Vector: a kind of vector with its operations. Internal linkage: files that are compiled for different processors must not
// share one.
template <typename Vector, std::uint32_t Vectors>
[[maybe_unused]] void add_squares_with(const float* const* queries, const float* packed, std::uint32_t floats, float* sums) {
    constexpr std::uint32_t width = Vector::lanes * Vectors;
    for (std::uint32_t panel = 0; panel < lane_images; panel += width, packed += floats * width) {
        typename Vector::type sum[lane_queries][Vectors];
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < lane_queries; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j) sum[i][j] = Vector::load(sums + i * lane_images + panel + j * Vector::lanes);
        for (std::uint32_t k = 0; k < floats; ++k) {
            typename Vector::type image[Vectors];
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j) image[j] = Vector::load(packed + k * width + j * Vector::lanes);
#pragma GCC unroll 8
            for (std::uint32_t i = 0; i < lane_queries; ++i) {
                const typename Vector::type query = Vector::broadcast(queries[i][k]);
#pragma GCC unroll 8
                for (std::uint32_t j = 0; j < Vectors; ++j) sum[i][j] = Vector::add_square(sum[i][j], Vector::subtract(query, image[j]));
            }
        }
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < lane_queries; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j) Vector::store(sums + i * lane_images + panel + j * Vector::lanes, sum[i][j]);
    }
}

}  // namespace

}  // namespace penstock::match
