// Compiled for AVX2 with fused multiply and add (CMakeLists.txt).
#include "products_loop.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace penstock::matvec {

namespace {

struct vector_of_8 {
    using type = __m256;
    static constexpr std::uint32_t lanes = 8;
    static type load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, type value) { _mm256_storeu_ps(to, value); }
    static type add_product(type sum, type a, type x) { return _mm256_fmadd_ps(a, x, sum); }
};

}  // namespace

const product_kernel avx2_products{add_products_with<vector_of_8, 8>, "AVX2"};

}  // namespace penstock::matvec
#endif
