// Vectors of 16 numbers, for files that are compiled for AVX-512.
#pragma once

#include <cstdint>

#include <immintrin.h>

namespace penstock::apps {

// Internal linkage: files that are compiled for different processors must not share one.
namespace {

struct vector_of_16 {
    using type = __m512;
    static constexpr std::uint32_t lanes = 16;
    static type load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, type value) { _mm512_storeu_ps(to, value); }
    static type broadcast(float value) { return _mm512_set1_ps(value); }
    static type subtract(type a, type b) { return _mm512_sub_ps(a, b); }
    static type add_product(type sum, type a, type b) {
        return _mm512_fmadd_ps(a, b, sum);
    }  // one rounding
};

}  // namespace

}  // namespace penstock::apps
