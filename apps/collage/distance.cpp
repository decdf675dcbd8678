#include "distance.hpp"

#include "common/vectors.hpp"

namespace penstock::collage {

PENSTOCK_CLONES("avx512f", "avx2", "default")
std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += squared_difference(a[i], b[i]);
    return sum;
}

const char* vector_name() {
#if defined(__x86_64__)
    const apps::vectors here = apps::vectors_here();
    return here == apps::vectors::avx512 ? "AVX-512"
           : here == apps::vectors::avx2 ? "AVX2"
                                         : "SSE2";
#else
    return "the compiler's vectors";
#endif
}

}  // namespace penstock::collage
