// The inner loops of products on CPU threads, compiled once for each kind of processor. Products
// are added in the order that docs/apps/matrix.md gives, with one rounding each (fused multiply and
// add); a GPU does the same, so both find the same bits.
#pragma once

#include <cstdint>

namespace penstock::matrix {

// Of a matrix times a vector: parts of a sum. A warp has four in each lane.
inline constexpr std::uint32_t part_count = 128;

// parts[(phase + i) % 128] += a[i] * x[i], one after the other; parts aligned to 64 bytes. The
// phase is a number's place in the file, modulo 128.
using add_products_function = void (*)(float* parts, const float* a, const float* x,
                                       std::uint32_t phase, std::uint64_t count);

// Of a matrix times a matrix: with four vectors of columns, six rows fill the 32 registers of
// AVX-512.
inline constexpr std::uint32_t kernel_rows = 6;
inline constexpr std::uint32_t kernel_columns = 64;

// As apps::add_tile (common/vectors.hpp), of kernel_rows and kernel_columns.
using add_tile_function = void (*)(const float* const* rows, const float* packed,
                                   std::uint32_t floats, float* sums);

struct lane_kernels {
    add_products_function add_products;
    add_tile_function add_tile;
    std::uint32_t panel_columns;  // of the packed columns that add_tile takes
    const char* name;
};

extern const lane_kernels plain_kernels;
#if defined(__x86_64__)
extern const lane_kernels avx2_kernels;
extern const lane_kernels avx512_kernels;
#endif

// The fastest that this processor has.
const lane_kernels& chosen_kernels();

}  // namespace penstock::matrix
