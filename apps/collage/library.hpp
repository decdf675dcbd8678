// A library of tiles on disk: what a tile is, the hash family, header and tables, and a mapping of
// it.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/files.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

inline constexpr std::uint32_t tile_side = 32;  // pixels
inline constexpr std::uint32_t tile_bytes = tile_side * tile_side * 3;
inline constexpr std::uint32_t bins = 3 * 256;  // red, then green, then blue
inline constexpr std::uint32_t record_bytes = bins * sizeof(std::uint32_t);  // one histogram
// From one histogram to the next in its file.
inline constexpr std::uint32_t record_stride_bytes = 4096;
inline constexpr std::uint32_t bins_per_feature = 8;
inline constexpr std::uint32_t features = bins / bins_per_feature;

// Counts of a whole tile in memory, `stride_bytes` from row to row.
inline void count_tile(const std::uint8_t* rgb, std::uint64_t stride_bytes,
                       std::uint32_t* histogram) {
    for (std::uint32_t i = 0; i < bins; ++i) histogram[i] = 0;
    for (std::uint32_t y = 0; y < tile_side; ++y, rgb += stride_bytes)
        for (std::uint32_t x = 0; x < tile_side * 3; x += 3) {
            ++histogram[rgb[x]];
            ++histogram[256 + rgb[x + 1]];
            ++histogram[512 + rgb[x + 2]];
        }
}

// One feature: how many pixels fall into its eight neighbouring bins.
PENSTOCK_HD PENSTOCK_INLINE std::uint16_t feature_of(const std::uint32_t* histogram,
                                                     std::uint32_t feature) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < bins_per_feature; ++i)
        sum += histogram[feature * bins_per_feature + i];
    return static_cast<std::uint16_t>(sum);
}

// Locality sensitive hashing in whole numbers, so that GPU and CPU agree to the last bit.
// docs/apps/collage.md has the formulas.

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

// A table's key from the sums and offsets of its projections, projections_per_table of each.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t key_of(std::uint32_t table, const std::int32_t* sums,
                                                 const std::uint32_t* offsets,
                                                 std::uint32_t width) {
    std::uint64_t key = mix64((table + 1) * golden);
    for (std::uint32_t i = 0; i < projections_per_table; ++i)
        key = mix64(key + cell_of(sums[i], offsets[i], width));
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
        mix64((std::uint64_t{table / tables_per_ranking} << 32 | id) + golden));
}

// The first `Count` sums of one tile by one thread. From a later projection on, if `coefficients`
// begins there.
template <std::uint32_t Count>
PENSTOCK_HD inline void project(const std::int16_t* coefficients,
                                const std::uint16_t* tile_features, std::int32_t* sums) {
    for (std::uint32_t p = 0; p < Count; ++p) sums[p] = 0;
    for (std::uint32_t f = 0; f < features; ++f) {
        const std::int32_t count = tile_features[f];
        if (count == 0) continue;  // most are, and all projections of one feature lie side by side
        const std::int16_t* const of = coefficients + std::uint64_t{f} * projections;
        for (std::uint32_t p = 0; p < Count; ++p) sums[p] += count * of[p];
    }
}

// The files of a library: names, header, layout of a table. docs/apps/collage.md describes them
// byte by byte.

inline constexpr std::uint64_t library_magic = 0x4547414c4c4f4350ull;  // "PCOLLAGE"
inline constexpr std::uint64_t table_magic = 0x32334853'4c4f4350ull;   // "PCOLSH32"
inline constexpr std::uint32_t library_version = 1;
inline constexpr std::uint64_t most_tiles = std::uint64_t{1} << 31;
inline constexpr std::uint64_t table_head_bytes = 4096;

// The file `header`: little-endian, as the memory of every machine that CUDA runs on.
struct library_header {
    std::uint64_t magic = library_magic;
    std::uint32_t version = library_version;
    std::uint32_t header_bytes = 0;
    std::uint64_t tile_count = 0;
    std::uint64_t seed = 0;
    std::uint32_t table_count = tables;
    std::uint32_t projection_count = projections_per_table;
    std::uint32_t feature_count = features;
    std::uint32_t cap = bucket_cap;
    std::uint32_t width = 0;
    std::uint32_t slots = 0;
    std::uint32_t fallback_count = fallback_candidates;
    std::uint32_t record_stride = record_stride_bytes;
    std::uint32_t picture_count = 0;
    std::uint32_t stride_pixels = 0;
    std::uint32_t scale_count = 0;
    std::uint32_t reserved = 0;
    std::uint64_t table_entries[tables] = {};
    std::uint64_t checksum = 0;  // of all bytes before it
};
static_assert(std::is_trivially_copyable_v<library_header> && sizeof(library_header) == 344);

// The first 4 KiB of a file lsh-NN; then slots + 1 numbers, where the entries of each slot begin;
// then, from the next multiple of 4 KiB on, the entries: by slot, in it by fingerprint and then by
// rank.
struct table_head {
    std::uint64_t magic = table_magic;
    std::uint32_t table = 0;
    std::uint32_t slots = 0;
    std::uint64_t entries = 0;
    std::uint64_t tile_count = 0;
};

struct table_entry {
    std::uint32_t fingerprint;  // the low half of the key
    std::uint32_t id;
};
static_assert(sizeof(table_entry) == 8);

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t entries_at(std::uint32_t slots) {
    return (table_head_bytes + (std::uint64_t{slots} + 1) * sizeof(std::uint32_t) + 4095) / 4096 *
           4096;
}

std::uint32_t slots_for(std::uint64_t tile_count);

std::string table_name(std::uint32_t table);  // "lsh-07"
inline constexpr const char* header_name = "header";
inline constexpr const char* histograms_name = "histograms";
inline constexpr const char* tiles_name = "tiles";

std::uint64_t checksum_of(const library_header& h);

// The files beside the header, by the place that each has in library::files().
inline constexpr std::uint32_t histograms_place = 0;
inline constexpr std::uint32_t tables_place = 1;  // of the first
inline constexpr std::uint32_t tiles_place = tables_place + tables;
inline constexpr std::uint32_t file_count = tiles_place + 1;

struct library_file {
    std::string path;
    std::uint64_t bytes;
};

// A library that was checked: header, sizes of all files, the head of each table.
struct library {
    std::string path;
    library_header header;
    [[nodiscard]] std::string file(const std::string& name) const { return path + "/" + name; }
    [[nodiscard]] std::vector<library_file> files() const;
    [[nodiscard]] std::uint64_t bytes() const;
};

// Checks everything that can be checked without reading it all. Messages name the file, what is
// wrong and the cure.
status open_library(const std::string& path, library& out);

// The library at addresses, those of library::files(): a source for make_block that has nothing to
// ask for.
class plain_source {
public:
    static constexpr bool fills_buffers = false;

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int slot(const Member&, std::uint32_t table, std::uint32_t slot,
                                         table_entry*, std::uint32_t& begin,
                                         std::uint32_t& end) const {
        const auto* const begins =
            reinterpret_cast<const std::uint32_t*>(files_[tables_place + table] + table_head_bytes);
        begin = begins[slot];
        end = begins[slot + 1];
        return 0;
    }
    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int entries(const Member&, std::uint32_t table, std::uint32_t first,
                                            std::uint32_t, table_entry*,
                                            const table_entry*& out) const {
        out = reinterpret_cast<const table_entry*>(files_[tables_place + table] + entries_at_) +
              first;
        return 0;
    }
    template <typename Member, typename Visit>
    PENSTOCK_HD PENSTOCK_INLINE int record(const Member&, std::uint32_t id,
                                           const Visit& visit) const {
        visit(reinterpret_cast<const std::uint32_t*>(files_[histograms_place] +
                                                     std::uint64_t{id} * record_stride_bytes),
              0, bins);
        return 0;
    }
    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int tile(const Member&, std::uint32_t id, std::uint8_t*,
                                         const std::uint8_t*& out) const {
        out = reinterpret_cast<const std::uint8_t*>(files_[tiles_place] +
                                                    std::uint64_t{id} * tile_bytes);
        return 0;
    }

    void place(std::uint32_t file, const void* at) { files_[file] = static_cast<const char*>(at); }
    void place_entries(std::uint64_t at) { entries_at_ = at; }

private:
    const char* files_[file_count] = {};
    std::uint64_t entries_at_ = 0;  // in each table
};

// The library in this process's address space, for the baselines.
class mapped_library : public plain_source {
public:
    status open(const library& of);
    [[nodiscard]] int histograms_fd() const { return histograms_fd_; }

private:
    apps::mapped_file files_[file_count];
    apps::unique_fd histograms_fd_;
};

}  // namespace penstock::collage
