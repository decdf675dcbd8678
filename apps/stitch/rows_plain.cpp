// Compiled for any processor.
#include "common/vectors.hpp"
#include "rows_loop.hpp"

namespace penstock::stitch {

const row_kernel plain_rows{sharpen_row_on<struct plain>, store_row_on<struct plain>, "plain code"};

const row_kernel& chosen_rows() {
#if defined(__x86_64__)
    if (apps::vectors_here() != apps::vectors::none) return avx2_rows;
#endif
    return plain_rows;
}

}  // namespace penstock::stitch
