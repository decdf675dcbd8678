#include "block_order.hpp"

#include <algorithm>

#include "tile.hpp"

namespace penstock::collage {

namespace {

// Six bits of each colour, interleaved: a walk along these numbers stays among like colours.
std::uint32_t interleaved(std::uint32_t red, std::uint32_t green, std::uint32_t blue) {
    std::uint32_t out = 0;
    for (std::uint32_t bit = 0; bit < 6; ++bit)
        out |= (green >> bit & 1) << (3 * bit + 2) | (red >> bit & 1) << (3 * bit + 1) | (blue >> bit & 1) << (3 * bit);
    return out;
}

}  // namespace

std::vector<std::uint32_t> block_order(const picture& of) {
    const std::uint32_t columns = (of.width + tile_side - 1) / tile_side, rows = (of.height + tile_side - 1) / tile_side;
    std::vector<std::uint64_t> keys;
    keys.reserve(std::size_t{columns} * rows);
    for (std::uint32_t row = 0; row < rows; ++row)
        for (std::uint32_t column = 0; column < columns; ++column) {
            std::uint32_t sum[3] = {};
            for (std::uint32_t i = 0; i < 16; ++i) {
                const std::uint32_t x = std::min(of.width - 1, column * tile_side + i % 4 * 8 + 4);
                const std::uint32_t y = std::min(of.height - 1, row * tile_side + i / 4 * 8 + 4);
                for (std::uint32_t c = 0; c < 3; ++c) sum[c] += of.rgb[(std::size_t{y} * of.width + x) * 3 + c];
            }
            keys.push_back(std::uint64_t{interleaved(sum[0] / 64, sum[1] / 64, sum[2] / 64)} << 32 | keys.size());
        }
    std::sort(keys.begin(), keys.end());
    std::vector<std::uint32_t> out;
    out.reserve(keys.size());
    for (const std::uint64_t key : keys) out.push_back(static_cast<std::uint32_t>(key));
    return out;
}

}  // namespace penstock::collage
