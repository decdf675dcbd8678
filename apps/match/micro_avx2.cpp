// Compiled for AVX2 with fused multiply and add (CMakeLists.txt).
#include "micro_loop.hpp"

#if defined(__x86_64__)
#include "common/vectors.hpp"

namespace penstock::match {

const micro_kernel avx2_kernel{add_squares_with<apps::vector_of_8, 2>, 16, "AVX2"};

}  // namespace penstock::match
#endif
