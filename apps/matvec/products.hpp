// The inner loop on CPU threads: products of numbers of the matrix with those of the vector, added
// to 128 parts of a sum. A product is added to the part that its number's place in the file says,
// modulo 128, one after the other with one rounding each (fused multiply and add). A warp does the
// same with four parts in each lane; so all methods find the same bits.
#pragma once

#include <cstdint>

namespace penstock::matvec {

inline constexpr std::uint32_t part_count = 128;

// parts[(phase + i) % 128] += a[i] * x[i]; parts aligned to 64 bytes.
using add_products_function = void (*)(float* parts, const float* a, const float* x,
                                       std::uint32_t phase, std::uint64_t count);

struct product_kernel {
    add_products_function add_products;
    const char* name;
};

// One for each kind of processor, in a file of its own that is compiled for it.
extern const product_kernel plain_products;
#if defined(__x86_64__)
extern const product_kernel avx2_products;
extern const product_kernel avx512_products;
#endif

// The fastest that this processor has.
const product_kernel& chosen_products();

}  // namespace penstock::matvec
