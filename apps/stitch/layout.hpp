// The layout of an image: which pixel comes from which tile, and which side makes it. It consists
// of rectangles of tiles, cut at the line that divides the image.
//
// Of several tiles that cover a pixel the one with the highest number owns it.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/error.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {

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
