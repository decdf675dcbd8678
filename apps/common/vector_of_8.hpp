// Vectors of 8 numbers, for files that are compiled for AVX2 with fused multiply and add.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace penstock::apps {

// Internal linkage: files that are compiled for different processors must not share one.
namespace {

struct vector_of_8 {
    using type = __m256;
    static constexpr std::uint32_t lanes = 8;
    static type load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, type value) { _mm256_storeu_ps(to, value); }
    static type broadcast(float value) { return _mm256_set1_ps(value); }
    static type subtract(type a, type b) { return _mm256_sub_ps(a, b); }
    static type add_product(type sum, type a, type b) {
        return _mm256_fmadd_ps(a, b, sum);
    }  // one rounding
};

}  // namespace

}  // namespace penstock::apps
