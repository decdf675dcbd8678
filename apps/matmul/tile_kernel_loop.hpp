// The loop of tile_kernel.hpp over vectors of one kind, for the files that are compiled for one
// kind of processor each.
#pragma once

#include <cstdint>

#include "common/vectors.hpp"
#include "tile_kernel.hpp"

namespace penstock::matmul {

namespace {

struct add_product {
    template <typename Vector>
    static typename Vector::type add(typename Vector::type sum, typename Vector::type a,
                                     typename Vector::type b) {
        return Vector::add_product(sum, a, b);
    }
};

// Internal linkage: files that are compiled for different processors must not share one.
template <typename Vector, std::uint32_t Vectors>
constexpr add_products_function add_products_with =
    apps::add_tile<Vector, Vectors, kernel_rows, kernel_columns, add_product>;

}  // namespace

}  // namespace penstock::matmul
