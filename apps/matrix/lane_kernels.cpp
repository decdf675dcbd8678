// The loops of lane_kernels.hpp. CMakeLists.txt compiles this file three times: for every
// processor, for AVX2 with fused multiply and add, and for AVX-512.
#include "lane_kernels.hpp"

#include <cmath>

#include "common/vectors.hpp"

namespace penstock::matrix {

// Internal linkage: what is compiled for different processors must not be shared.
namespace {

// Numbers that are in the first-level cache when the next vectors of parts go over them.
constexpr std::uint64_t round_numbers = 16 * part_count;

// Vector: a kind of vector with its operations; Vectors of them are in registers at a time.
template <typename Vector, std::uint32_t Vectors>
void add_products_with(float* parts, const float* a, const float* x, std::uint32_t phase,
                       std::uint64_t count) {
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

struct add_product {
    template <typename Vector>
    static typename Vector::type add(typename Vector::type sum, typename Vector::type a,
                                     typename Vector::type b) {
        return Vector::add_product(sum, a, b);
    }
};

// Parts and panels: how many vectors are in registers at a time.
template <typename Vector, std::uint32_t Parts, std::uint32_t Panels>
constexpr lane_kernels kernels_with(const char* name) {
    return {add_products_with<Vector, Parts>,
            apps::add_tile<Vector, Panels, kernel_rows, kernel_columns, add_product>,
            Vector::lanes * Panels, name};
}

}  // namespace

#if defined(PENSTOCK_KERNELS_AVX512)
const lane_kernels avx512_kernels = kernels_with<apps::vector_of_16, 8, 4>("AVX-512");
#elif defined(PENSTOCK_KERNELS_AVX2)
const lane_kernels avx2_kernels = kernels_with<apps::vector_of_8, 8, 2>("AVX2");
#else
const lane_kernels plain_kernels = kernels_with<apps::one_number, 4, 4>("single numbers");

const lane_kernels& chosen_kernels() {
#if defined(__x86_64__)
    static const apps::vectors here = apps::vectors_here();
    if (here == apps::vectors::avx512) return avx512_kernels;
    if (here == apps::vectors::avx2) return avx2_kernels;
#endif
    return plain_kernels;
}
#endif

}  // namespace penstock::matrix
