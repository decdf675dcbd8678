// Compiled for AVX-512 (CMakeLists.txt).
#include "micro_loop.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

namespace penstock::match {

namespace {

struct vector_of_16 {
    using type = __m512;
    static constexpr std::uint32_t lanes = 16;
    static type load(const float* from) { return _mm512_load_ps(from); }
    static void store(float* to, type value) { _mm512_store_ps(to, value); }
    static type broadcast(float value) { return _mm512_set1_ps(value); }
    static type subtract(type a, type b) { return _mm512_sub_ps(a, b); }
    static type add_square(type sum, type value) { return _mm512_fmadd_ps(value, value, sum); }
};

}  // namespace

const micro_kernel avx512_kernel{add_squares_with<vector_of_16, 4>, 64, "AVX-512"};

}  // namespace penstock::match
#endif
