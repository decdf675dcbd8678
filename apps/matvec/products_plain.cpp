// For every processor: one number at a time.
#include "common/vectors.hpp"
#include "products_loop.hpp"

namespace penstock::matvec {

namespace {

const product_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_products;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_products;
#endif
    return plain_products;
}

}  // namespace

const product_kernel plain_products{add_products_with<apps::one_number, 4>, "single numbers"};

const product_kernel& chosen_products() {
    static const product_kernel& one = choose();
    return one;
}

}  // namespace penstock::matvec
