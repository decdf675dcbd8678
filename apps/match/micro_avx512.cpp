// Compiled for AVX-512 (CMakeLists.txt).
#include "micro_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::match {

const micro_kernel avx512_kernel{add_squares_with<apps::vector_of_16, 4>, 64, "AVX-512"};

}  // namespace penstock::match
#endif
