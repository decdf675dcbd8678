// Which tiles are cut out of which pictures: a plan made from the pictures' sizes alone, so that
// every tile's number is known before the first pixel is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"

namespace penstock::collage {

struct source_picture {
    std::string path;
    std::uint32_t width = 0;
    std::uint32_t height = 0;
};

// One scale of one picture: 1 / 2^level of its size. Tiles lie `stride` pixels apart.
struct level_plan {
    std::uint32_t width;
    std::uint32_t height;
    std::uint32_t columns;
    std::uint32_t rows;
    std::uint64_t first;  // place of its first tile among all that could be cut
};

struct picture_plan {
    source_picture source;
    std::vector<level_plan> levels;
};

struct tiling {
    std::vector<picture_plan> pictures;
    std::uint32_t stride = 0;
    std::uint64_t places = 0;  // that could be cut
    std::uint64_t tiles = 0;   // that are cut: all, or so many spread evenly over the places

    // How many tiles are cut before place `at`: the number of the tile there, if one is cut there.
    [[nodiscard]] std::uint64_t tiles_before(std::uint64_t at) const {
        return static_cast<std::uint64_t>(static_cast<unsigned __int128>(at) * tiles / places);
    }
};

// `stride` 0: the largest, at most a tile's side, that gives `tiles` of them. `tiles` 0: all there
// are; then a stride of 0 stands for a tile's side. -ERANGE and a message if there are too few, or
// too many for one library.
status plan_tiles(const std::vector<source_picture>& pictures, std::uint32_t scales,
                  std::uint32_t stride, std::uint64_t tiles, tiling& out);

}  // namespace penstock::collage
