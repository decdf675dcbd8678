// Compiled for AVX-512 (CMakeLists.txt).
#include "products_loop.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace penstock::matvec {

namespace {

struct vector_of_16 {
    using type = __m512;
    static constexpr std::uint32_t lanes = 16;
    static type load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, type value) { _mm512_storeu_ps(to, value); }
    static type add_product(type sum, type a, type x) { return _mm512_fmadd_ps(a, x, sum); }
};

}  // namespace

const product_kernel avx512_products{add_products_with<vector_of_16, 8>, "AVX-512"};

}  // namespace penstock::matvec
#endif
