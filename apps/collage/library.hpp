// The files of a library: names, header, layout of a table. docs/collage.md describes them byte by
// byte.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "lsh.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

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

// A library that was checked: header, sizes of all files, the head of each table.
struct library {
    std::string path;
    library_header header;
    [[nodiscard]] std::string file(const std::string& name) const { return path + "/" + name; }
    [[nodiscard]] std::uint64_t bytes() const;
};

// Checks everything that can be checked without reading it all. Messages name the file, what is
// wrong and the cure.
status open_library(const std::string& path, library& out);

}  // namespace penstock::collage
