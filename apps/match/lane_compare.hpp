// An item on a CPU thread. The tile's images are packed, number by number as they are needed, so
// that one vector holds a number of many images; then a few queries at a time go through them.
#pragma once

#include <bit>
#include <cerrno>
#include <cstdint>

#include "match_view.hpp"

namespace penstock::match {

// The inner loop: adds the squared differences of some queries and the images of a tile. Each sum
// is made one number after the other, with one rounding a number (fused multiply and add), as on
// the GPU; so all methods find the same bits.

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

// For every processor, and for those that have wider vectors.
extern const micro_kernel plain_kernel;
#if defined(__x86_64__)
extern const micro_kernel avx2_kernel, avx512_kernel;
#endif

// The fastest that this processor has.
const micro_kernel& chosen_kernel();

// Numbers between two looks whether any of the distances can still be below the threshold.
inline constexpr std::uint32_t lane_unit_floats = 128;

// Floats that a thread needs to hold a tile, aligned to 64 bytes.
constexpr std::uint64_t lane_scratch_floats(std::uint32_t floats) {
    return std::uint64_t{floats} * lane_images;
}

// Up to lane_queries of the item's queries from `next` on that have no match before the tile.
// `next` moves behind the last one.
inline std::uint32_t pick_live(const match_view& v, const tile_place& at, std::uint64_t& next,
                               std::uint64_t* out) {
    std::uint32_t count = 0;
    for (; next < at.query_end && count < lane_queries; ++next)
        if (is_live(v, at, next)) out[count++] = next;
    return count;
}

inline bool any_below(const float* sums, std::uint32_t queries, std::uint32_t images,
                      float threshold) {
    bool any = false;
    for (std::uint32_t i = 0; i < queries; ++i)
        for (std::uint32_t j = 0; j < images; ++j) any |= sums[i * lane_images + j] < threshold;
    return any;
}

// Source: visit(at, image, first_byte, bytes, f) calls f(numbers, which of them is the first,
// count) for pieces of the image.
template <typename Source>
int pack_unit(const Source& source, const tile_place& at, std::uint32_t first, std::uint32_t floats,
              std::uint32_t width, float* packed) {
    for (std::uint32_t image = 0; image < at.images; ++image) {
        float* const column = packed + std::uint64_t{first} * lane_images +
                              std::uint64_t{image / width} * floats * width + image % width;
        const int code = source.visit(
            at, at.byte_of(image) + std::uint64_t{first} * sizeof(float), floats * sizeof(float),
            [&](const float* from, std::uint64_t begin, std::uint64_t count) {
                float* to = column + begin * width;
                for (std::uint64_t k = 0; k < count; ++k, to += width) *to = from[k];
            });
        if (code != 0) return code;
    }
    return 0;
}

template <typename Source>
void compare_on_lane(const Source& source, const match_view& v, const tile_place& at,
                     float* packed) {
    const micro_kernel& kernel = chosen_kernel();
    std::uint64_t next = at.query_begin, live[lane_queries];
    std::uint32_t ready = 0;  // numbers of each image that are packed
    while (const std::uint32_t count = pick_live(v, at, next, live)) {
        const float* rows[lane_queries];
        // Where there are fewer, the first stands in.
        for (std::uint32_t i = 0; i < lane_queries; ++i)
            rows[i] = v.queries + live[i < count ? i : 0] * v.floats;
        alignas(64) float sums[lane_queries * lane_images] = {};
        std::uint32_t done = 0;
        bool alive = true;
        while (alive && done < v.floats) {
            const std::uint32_t floats =
                v.floats - done < lane_unit_floats ? v.floats - done : lane_unit_floats;
            if (ready == done) {
                if (const int code =
                        pack_unit(source, at, done, floats, kernel.panel_images, packed);
                    code != 0)
                    return note_error(v, at, code);
                ready += floats;
            }
            kernel.add_squares(rows, packed + std::uint64_t{done} * lane_images, floats, sums);
            done += floats;
            for (const float*& row : rows) row += floats;
            alive = v.whole != 0 || any_below(sums, count, at.images, v.threshold);
        }
        for (std::uint32_t i = 0; alive && i < count; ++i)
            for (std::uint32_t j = 0; j < at.images; ++j)
                if (sums[i * lane_images + j] < v.threshold)
                    note_match(v, live[i], at.number(j),
                               std::bit_cast<std::uint32_t>(sums[i * lane_images + j]));
        const std::uint64_t pairs = std::uint64_t{count} * at.images;
        atomic_add_relaxed(&v.totals->pairs, pairs);
        atomic_add_relaxed(&v.totals->numbers, pairs * done);
    }
}

}  // namespace penstock::match
