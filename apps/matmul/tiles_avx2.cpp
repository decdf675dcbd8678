// Compiled for AVX2 with fused multiply and add (CMakeLists.txt).
#include "tile_kernel_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::matmul {

const tile_kernel avx2_tiles{add_products_with<apps::vector_of_8, 2>, 16, "AVX2"};

}  // namespace penstock::matmul
#endif
