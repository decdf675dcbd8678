// Compiled for AVX2 with fused multiply and add (CMakeLists.txt).
#include "micro_loop.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace penstock::match {

namespace {

struct vector_of_8 {
    using type = __m256;
    static constexpr std::uint32_t lanes = 8;
    static type load(const float* from) { return _mm256_load_ps(from); }
    static void store(float* to, type value) { _mm256_store_ps(to, value); }
    static type broadcast(float value) { return _mm256_set1_ps(value); }
    static type subtract(type a, type b) { return _mm256_sub_ps(a, b); }
    static type add_square(type sum, type value) { return _mm256_fmadd_ps(value, value, sum); }
};

}  // namespace

const micro_kernel avx2_kernel{add_squares_with<vector_of_8, 2>, 16, "AVX2"};

}  // namespace penstock::match
#endif
