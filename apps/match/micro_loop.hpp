// The loop of micro_kernel.hpp over vectors of one kind, for the files that are compiled for one
// kind of processor each.
#pragma once

#include <cstdint>

#include "common/vectors.hpp"
#include "micro_kernel.hpp"

namespace penstock::match {

namespace {

struct add_square {
    template <typename Vector>
    static typename Vector::type add(typename Vector::type sum, typename Vector::type query,
                                     typename Vector::type image) {
        const typename Vector::type difference = Vector::subtract(query, image);
        return Vector::add_product(sum, difference, difference);
    }
};

// Internal linkage: files that are compiled for different processors must not share one.
template <typename Vector, std::uint32_t Vectors>
constexpr add_squares_function add_squares_with =
    apps::add_tile<Vector, Vectors, lane_queries, lane_images, add_square>;

}  // namespace

}  // namespace penstock::match
