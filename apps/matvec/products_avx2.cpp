// Compiled for AVX2 with fused multiply and add (CMakeLists.txt).
#include "products_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::matvec {

const product_kernel avx2_products{add_products_with<apps::vector_of_8, 8>, "AVX2"};

}  // namespace penstock::matvec
#endif
