// For every processor: one number at a time.
#include "common/vectors.hpp"
#include "tile_kernel_loop.hpp"

namespace penstock::matmul {

namespace {

const tile_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_tiles;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_tiles;
#endif
    return plain_tiles;
}

}  // namespace

const tile_kernel plain_tiles{add_products_with<apps::one_number, 4>, 4, "single numbers"};

const tile_kernel& chosen_tiles() {
    static const tile_kernel& one = choose();
    return one;
}

}  // namespace penstock::matmul
