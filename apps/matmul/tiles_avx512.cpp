// Compiled for AVX-512 (CMakeLists.txt).
#include "tile_kernel_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::matmul {

const tile_kernel avx512_tiles{add_products_with<apps::vector_of_16, 4>, 64, "AVX-512"};

}  // namespace penstock::matmul
#endif
