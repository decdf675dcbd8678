// The kernel: a thread block makes a piece in shared memory. Only in programs with CUDA. Plain
// pointers, nothing of Penstock.
//
// The piece comes with a margin of as many pixels as there are convolutions, and each convolution
// is right for one pixel less at each side. So blocks know nothing of each other, at the price of
// computing margins twice.
#pragma once

#include <cuda_runtime.h>

#include "methods.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

inline constexpr int kernel_threads = 512;
inline constexpr std::uint32_t strip_rows = 8;

// For pieces of at most `side` pixels each way.
inline std::uint64_t shared_bytes_for(std::uint32_t side, std::uint32_t convolutions) {
    const std::uint64_t with_margin = side + 2 * std::uint64_t{convolutions};
    return 2 * with_margin * with_margin * sizeof(std::uint16_t);
}

// Sum of a pixel and those beside it, weighed 1 2 1. At the tile's border, which is the room's
// there, the pixel counts again.
__device__ __forceinline__ std::int32_t sum_of_three(const std::uint16_t* row, std::uint32_t before,
                                                     std::uint32_t at, std::uint32_t behind) {
    return std::int32_t{row[before]} + 2 * std::int32_t{row[at]} + std::int32_t{row[behind]};
}

// One convolution of `a`, all in coordinates of the room, which is width by height. A thread goes
// down a strip of a column, so that of three sums two are known.
__device__ inline void sharpen_room(const std::uint16_t* from, std::uint16_t* to, const area& a,
                                    std::uint32_t width, std::uint32_t height) {
    const std::uint32_t strips = (a.height() + strip_rows - 1) / strip_rows,
                        items = a.width() * strips;
    for (std::uint32_t item = threadIdx.x; item < items; item += blockDim.x) {
        const std::uint32_t x = a.left + item % a.width(),
                            first = a.top + item / a.width() * strip_rows;
        const std::uint32_t last = first + strip_rows < a.bottom ? first + strip_rows : a.bottom;
        const std::uint32_t before = x == 0 ? 0 : x - 1, behind = x + 1 == width ? x : x + 1;
        std::int32_t above =
            sum_of_three(from + (first == 0 ? 0 : first - 1) * width, before, x, behind);
        std::int32_t here = sum_of_three(from + first * width, before, x, behind);
        for (std::uint32_t y = first; y < last; ++y) {
            const std::int32_t below =
                sum_of_three(from + (y + 1 == height ? y : y + 1) * width, before, x, behind);
            to[y * width + x] = sharpened(from[y * width + x], above + 2 * here + below);
            above = here;
            here = below;
        }
    }
}

__global__ void __launch_bounds__(kernel_threads)
    sharpen_pieces(const tiles_in_memory tiles, const image_in_memory image, const piece* pieces,
                   std::uint32_t convolutions) {
    extern __shared__ std::uint16_t rooms[];
    const piece p = pieces[blockIdx.x];
    const area whole = area_of(p, convolutions, tiles.width, tiles.height);
    const std::uint32_t width = whole.width(), height = whole.height(), warps = blockDim.x / 32,
                        warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    std::uint16_t* from = rooms;
    std::uint16_t* to = rooms + width * height;
    const std::uint16_t* const tile =
        tiles.pixels + std::uint64_t{p.tile - tiles.first} * tiles.stride;
    for (std::uint32_t y = warp; y < height; y += warps)
        for (std::uint32_t x = lane; x < width; x += 32)
            from[y * width + x] = tile[std::uint64_t{whole.top + y} * tiles.width + whole.left + x];
    __syncthreads();
    for (std::uint32_t left = convolutions; left > 0; --left) {
        area a = area_of(p, left - 1, tiles.width, tiles.height);
        a = {a.left - whole.left, a.top - whole.top, a.right - whole.left, a.bottom - whole.top};
        sharpen_room(from, to, a, width, height);
        __syncthreads();
        std::uint16_t* const made = to;
        to = from;
        from = made;
    }
    const std::uint16_t* const result = from + (p.top - whole.top) * width + (p.left - whole.left);
    for (std::uint32_t y = warp; y < p.height; y += warps)
        for (std::uint32_t x = lane; x < p.width; x += 32)
            image.pixels[std::uint64_t{p.y + y} * image.stride + p.x + x] =
                swapped(result[y * width + x]);
}

}  // namespace penstock::stitch
