// Compiled for AVX-512 (CMakeLists.txt).
#include "products_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::matvec {

const product_kernel avx512_products{add_products_with<apps::vector_of_16, 8>, "AVX-512"};

}  // namespace penstock::matvec
#endif
