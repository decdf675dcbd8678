// For every processor: one number at a time. Where it has no fused multiply and add, the C library computes it.
#include "common/processor.hpp"
#include "products_loop.hpp"

namespace penstock::matvec {

namespace {

struct one_number {
    using type = float;
    static constexpr std::uint32_t lanes = 1;
    static type load(const float* from) { return *from; }
    static void store(float* to, type value) { *to = value; }
    static type add_product(type sum, type a, type x) { return std::fma(a, x, sum); }
};

const product_kernel& choose() {
#if defined(__x86_64__)
    if (apps::vectors_here() == apps::vectors::avx512) return avx512_products;
    if (apps::vectors_here() == apps::vectors::avx2) return avx2_products;
#endif
    return plain_products;
}

}  // namespace

const product_kernel plain_products{add_products_with<one_number, 4>, "single numbers"};

const product_kernel& chosen_products() {
    static const product_kernel& one = choose();
    return one;
}

}  // namespace penstock::matvec
