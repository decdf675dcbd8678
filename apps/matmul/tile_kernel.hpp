// The inner loop on CPU threads: products of numbers of some rows of A with those of the columns of
// B, added one after the other with one rounding each (fused multiply and add), as on the GPU; so
// all methods find the same bits.
#pragma once

#include <cstdint>

namespace penstock::matmul {

// With four vectors of columns they fill the 32 registers of AVX-512.
inline constexpr std::uint32_t kernel_rows = 6;
inline constexpr std::uint32_t kernel_columns = 64;

// As apps::add_tile (common/vectors.hpp), of kernel_rows and kernel_columns.
using add_products_function = void (*)(const float* const* rows, const float* packed,
                                       std::uint32_t floats, float* sums);

struct tile_kernel {
    add_products_function add_products;
    std::uint32_t panel_columns;
    const char* name;
};

// One for each kind of processor, in a file of its own that is compiled for it.
extern const tile_kernel plain_tiles;
#if defined(__x86_64__)
extern const tile_kernel avx2_tiles;
extern const tile_kernel avx512_tiles;
#endif

// The fastest that this processor has.
const tile_kernel& chosen_tiles();

}  // namespace penstock::matmul
