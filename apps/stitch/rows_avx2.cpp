// Compiled for AVX2 (CMakeLists.txt).
#include "rows_loop.hpp"

#if defined(__x86_64__)
namespace penstock::stitch {

const row_kernel avx2_rows{sharpen_row_on<struct avx2>, store_row_on<struct avx2>, "AVX2"};

}  // namespace penstock::stitch
#endif
