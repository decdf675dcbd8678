// The inner loop on CPU threads: adds the squared differences of some queries and the images of a
// tile. Each sum is made one number after the other, with one rounding a number (fused multiply and
// add), as on the GPU; so all methods find the same bits.
#pragma once

#include <cstdint>

namespace penstock::match {

// With four vectors of images they fill the 32 registers of AVX-512.
inline constexpr std::uint32_t lane_queries = 6;
inline constexpr std::uint32_t lane_images = 64;

// queries: lane_queries pointers to `floats` numbers. packed: of the tile's images, in panels of so
// many images side by side: for each number, that of all images of the panel. sums: of each query
// with each image, lane_images a query.
using add_squares_function = void (*)(const float* const* queries, const float* packed,
                                      std::uint32_t floats, float* sums);

struct micro_kernel {
    add_squares_function add_squares;
    std::uint32_t panel_images;
    const char* name;
};

// One for each kind of processor, in a file of its own that is compiled for it.
extern const micro_kernel plain_kernel;
#if defined(__x86_64__)
extern const micro_kernel avx2_kernel;
extern const micro_kernel avx512_kernel;
#endif

// The fastest that this processor has.
const micro_kernel& chosen_kernel();

}  // namespace penstock::match
