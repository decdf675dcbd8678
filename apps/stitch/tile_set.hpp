// A file of tiles: where each lies in the image, and its pixels. docs/apps/stitch.md has the
// format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/numbers.hpp"
#include "penstock/error.hpp"

namespace penstock::stitch {

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint32_t most_tile_side = 16384;
inline constexpr std::uint32_t most_tiles = 1u << 20;
inline constexpr std::uint32_t most_image_side = 1u << 21;  // a row has 4 MiB at most

// The first page of a file. Little-endian, as the machine.
struct tile_header {
    char magic[8];
    std::uint32_t version, tile_width, tile_height, tile_count, image_width, image_height;
    std::uint64_t first_tile, tile_stride, file_bytes;  // in bytes
};
inline constexpr char tile_magic[8] = {'P', 'N', 'S', 'T', 'I', 'T', 'C', 'H'};
inline constexpr std::uint32_t tile_version = 1;

// The left upper corner of a tile in the image.
struct tile_place {
    std::uint32_t x, y;
};

struct tile_set {
    apps::number_file file;  // which it is, and how long
    std::uint32_t tile_width = 0, tile_height = 0;
    std::uint32_t image_width = 0, image_height = 0;
    std::vector<tile_place> places;

    [[nodiscard]] std::uint64_t pixels_of_tile() const {
        return std::uint64_t{tile_width} * tile_height;
    }
    // From one tile to the next; each begins at a page.
    [[nodiscard]] std::uint64_t tile_stride() const {
        return (2 * pixels_of_tile() + page_bytes - 1) / page_bytes * page_bytes;
    }
    [[nodiscard]] std::uint64_t first_tile() const {
        return page_bytes +
               (places.size() * sizeof(tile_place) + page_bytes - 1) / page_bytes * page_bytes;
    }
    [[nodiscard]] std::uint64_t file_bytes() const {
        return first_tile() + places.size() * tile_stride();
    }
};

tile_header header_of(const tile_set& tiles);

// Reads header and table and checks them. A negative errno and a message with file, value and cure.
status open_tiles(const std::string& path, tile_set& out);

}  // namespace penstock::stitch
