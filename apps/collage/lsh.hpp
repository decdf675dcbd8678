// Locality sensitive hashing in whole numbers, so that GPU and CPU agree to the last bit.
// docs/collage.md has the formulas.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/base/macros.hpp"
#include "tile.hpp"

namespace penstock::collage {

inline constexpr std::uint32_t tables = 32;
inline constexpr std::uint32_t projections_per_table = 6;
inline constexpr std::uint32_t projections = tables * projections_per_table;
// Entries that one bucket may have. A block has at most tables * bucket_cap candidates.
inline constexpr std::uint32_t bucket_cap = 32;
inline constexpr std::uint32_t most_candidates = tables * bucket_cap;
// Tiles that stand in where no bucket has any: spread evenly over the library.
inline constexpr std::uint32_t fallback_candidates = 256;

// Coefficients are random at every fourth feature and lie on straight lines in between. Colours
// that differ a little then have projections that differ a little, though they may count in
// different bins.
inline constexpr std::uint32_t features_per_channel = features / 3;
inline constexpr std::uint32_t features_per_knot = 4;
inline constexpr std::uint32_t knots_per_channel = features_per_channel / features_per_knot + 1;

// More than any projection can fall below zero: 4 * 510 * 3 * 1024, rounded up.
inline constexpr std::int32_t projection_bias = 6291456;
inline constexpr std::uint32_t most_width = 1u << 24;  // no two projections differ by more

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

// The random numbers of a library, made from its seed.
struct lsh_family {
    std::vector<std::int16_t> coefficients;  // [feature][projection], -2040 to 2040
    std::vector<std::uint32_t> offsets;      // [projection], below the width
    std::uint32_t width = 1;
};

lsh_family make_family(std::uint64_t seed, std::uint32_t width);

// The same, as a kernel sees it.
struct lsh_ref {
    const std::int16_t* coefficients;
    const std::uint32_t* offsets;
    std::uint32_t width;
    std::uint32_t slots;  // of each table: a power of two
};

// Cell of one projection. `sum` is the product of the features and that projection's coefficients.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t cell_of(std::int32_t sum, std::uint32_t offset,
                                                  std::uint32_t width) {
    return (static_cast<std::uint32_t>(sum + projection_bias) + offset) / width;
}

// A table's key from its cells, projections_per_table of them.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t key_of(std::uint32_t table, const std::uint32_t* cells) {
    std::uint64_t key = mix((table + 1) * golden);
    for (std::uint32_t i = 0; i < projections_per_table; ++i) key = mix(key + cells[i]);
    return key;
}

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t slot_of(std::uint64_t key, std::uint32_t slots) {
    return static_cast<std::uint32_t>(key >> 32) & (slots - 1);
}

// Where entries of a bucket are cut off, those of least rank stay. Eight tables share a ranking, so
// that blocks which fall into different large buckets of one region meet the same tiles there, and
// read pages that others have read.
inline constexpr std::uint32_t tables_per_ranking = 8;

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t rank_of(std::uint32_t table, std::uint32_t id) {
    return static_cast<std::uint32_t>(
        mix((std::uint64_t{table / tables_per_ranking} << 32 | id) + golden));
}

// All sums of one tile by one thread: sums[p] for p below `projections`.
PENSTOCK_HD inline void project(const std::int16_t* coefficients,
                                const std::uint16_t* tile_features, std::int32_t* sums) {
    for (std::uint32_t p = 0; p < projections; ++p) sums[p] = 0;
    for (std::uint32_t f = 0; f < features; ++f) {
        const std::int32_t count = tile_features[f];
        if (count == 0) continue;  // most are, and all projections of one feature lie side by side
        const std::int16_t* const of = coefficients + std::uint64_t{f} * projections;
        for (std::uint32_t p = 0; p < projections; ++p) sums[p] += count * of[p];
    }
}

}  // namespace penstock::collage
