// The loop of products.hpp over vectors of one kind, for the files that are compiled for one kind
// of processor each.
#pragma once

#include <cmath>
#include <cstdint>

#include "products.hpp"

namespace penstock::matvec {

namespace {

// Numbers that are in the first-level cache when the next vectors of parts go over them.
constexpr std::uint64_t round_numbers = 16 * part_count;

// Vector: a kind of vector with its operations; Vectors of them are in registers at a time.
// Internal linkage: files that are compiled for different processors must not share one.
template <typename Vector, std::uint32_t Vectors>
[[maybe_unused]] void add_products_with(float* parts, const float* a, const float* x,
                                        std::uint32_t phase, std::uint64_t count) {
    constexpr std::uint32_t width = Vector::lanes * Vectors;
    static_assert(part_count % width == 0, "parts are taken in equal turns");
    for (; phase % part_count != 0 && count > 0; ++phase, ++a, ++x, --count)
        parts[phase] = std::fma(*a, *x, parts[phase]);
    while (count >= part_count) {
        const std::uint64_t whole = count / part_count * part_count,
                            numbers = whole < round_numbers ? whole : round_numbers;
        for (std::uint32_t first = 0; first < part_count; first += width) {
            typename Vector::type part[Vectors];
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                part[j] = Vector::load(parts + first + j * Vector::lanes);
            for (std::uint64_t i = first; i < numbers; i += part_count) {
#pragma GCC unroll 8
                for (std::uint32_t j = 0; j < Vectors; ++j)
                    part[j] = Vector::add_product(part[j], Vector::load(a + i + j * Vector::lanes),
                                                  Vector::load(x + i + j * Vector::lanes));
            }
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                Vector::store(parts + first + j * Vector::lanes, part[j]);
        }
        a += numbers, x += numbers, count -= numbers;
    }
    for (std::uint64_t i = 0; i < count; ++i) parts[i] = std::fma(a[i], x[i], parts[i]);
}

}  // namespace

}  // namespace penstock::matvec
