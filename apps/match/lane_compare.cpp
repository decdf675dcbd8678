// The loop over the numbers of a tile, for each kind of processor. Each kind has as many sums at
// once as its registers hold, so this is not one function with clones.
#include "lane_compare.hpp"

#include <cmath>

#include "common/vectors.hpp"

namespace penstock::match {

namespace {

template <std::uint32_t Numbers>
struct vector_of {
    typedef float type __attribute__((vector_size(Numbers * sizeof(float)), aligned(4)));
};
template <>
struct vector_of<1> {
    using type = float;
};

// Inlined, so that it is compiled for the processor of its caller.
template <std::uint32_t Numbers, std::uint32_t Vectors>
[[gnu::always_inline]] inline void add_tile(const float* const* queries, const float* packed,
                                            std::uint32_t floats, float* sums) {
    using vector = typename vector_of<Numbers>::type;
    constexpr std::uint32_t width = Numbers * Vectors;
    for (std::uint32_t panel = 0; panel < lane_images; panel += width, packed += floats * width) {
        const auto place = [&](std::uint32_t query, std::uint32_t of) {
            return reinterpret_cast<vector*>(sums + query * lane_images + panel + of * Numbers);
        };
        vector sum[lane_queries][Vectors], images[Vectors];
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < lane_queries; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j) sum[i][j] = *place(i, j);
        for (std::uint32_t k = 0; k < floats; ++k) {
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                images[j] = *reinterpret_cast<const vector*>(packed + k * width + j * Numbers);
#pragma GCC unroll 8
            for (std::uint32_t i = 0; i < lane_queries; ++i)
#pragma GCC unroll 8
                for (std::uint32_t j = 0; j < Vectors; ++j) {
                    const vector difference = queries[i][k] - images[j];
                    // One rounding: the compiler fuses the two where the processor can.
                    if constexpr (Numbers == 1)
                        sum[i][j] = std::fma(difference, difference, sum[i][j]);
                    else sum[i][j] = difference * difference + sum[i][j];
                }
        }
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < lane_queries; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j) *place(i, j) = sum[i][j];
    }
}

void add_plain(const float* const* queries, const float* packed, std::uint32_t floats,
               float* sums) {
    add_tile<1, 4>(queries, packed, floats, sums);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void add_avx2(const float* const* queries, const float* packed,
                                          std::uint32_t floats, float* sums) {
    add_tile<8, 2>(queries, packed, floats, sums);
}

[[gnu::target("avx512f")]] void add_avx512(const float* const* queries, const float* packed,
                                           std::uint32_t floats, float* sums) {
    add_tile<16, 4>(queries, packed, floats, sums);
}
#endif

const micro_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_kernel;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_kernel;
#endif
    return plain_kernel;
}

}  // namespace

const micro_kernel plain_kernel{add_plain, 4, "single numbers"};
#if defined(__x86_64__)
const micro_kernel avx2_kernel{add_avx2, 16, "AVX2"};
const micro_kernel avx512_kernel{add_avx512, 64, "AVX-512"};
#endif

const micro_kernel& chosen_kernel() {
    static const micro_kernel& chosen = choose();
    return chosen;
}

}  // namespace penstock::match
