// A file of tiles (docs/apps/stitch.md has the format), and the layout of the image: which pixel
// comes from which tile, and which side makes it.
#pragma once

#include <cstddef>
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

// Bytes of the file from `offset` on, by so many threads.
status read_tiles(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes, std::byte* to,
                  std::uint32_t threads);

// The layout: rectangles of tiles, cut at the line that divides the image. Of several tiles that
// cover a pixel the one with the highest number owns it.

// A part of a tile, and where it goes. Plain, for the GPU has it too.
struct piece {
    std::uint32_t tile;
    std::uint32_t left, top;  // in the tile
    std::uint32_t width, height;
    std::uint32_t x, y;  // in the image
};

// All pixels that a tile owns, each once. -ECANCELED after an interrupt.
status owned_pieces(const tile_set& tiles, std::vector<piece>& out);

// What of the pieces lies in columns [begin, end) of the image.
std::vector<piece> within(const std::vector<piece>& pieces, std::uint32_t begin, std::uint32_t end);

// The same pixels in pieces of at most so many columns and rows, of about even size.
std::vector<piece> cut(const std::vector<piece>& pieces, std::uint32_t columns, std::uint32_t rows);

std::uint64_t pixels_of(const std::vector<piece>& pieces);

// Pages of the file that have pixels of both sides of a line left of column `split`, of pixels that
// begin at `first_byte`.
std::uint64_t shared_pages(std::uint32_t width, std::uint32_t height, std::uint32_t split,
                           std::uint64_t first_byte);

}  // namespace penstock::stitch
