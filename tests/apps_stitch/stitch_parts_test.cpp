// The parts of penstock-stitch that have a simple truth to be compared with.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "methods.hpp"
#include "sharpen.hpp"
#include "tile_set.hpp"

namespace penstock::stitch {
namespace {

std::vector<std::uint16_t> random_pixels(std::size_t count, unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<std::uint16_t> out(count);
    for (std::uint16_t& pixel : out)
        pixel = static_cast<std::uint16_t>(dice() % 4 == 0 ? (dice() % 2 == 0 ? 65535u : 0u)
                                                           : dice() % 65536);
    return out;
}

tile_set random_tiles(std::uint32_t count, unsigned seed) {
    std::mt19937 dice(seed);
    tile_set out;
    out.tile_width = 1 + dice() % 30, out.tile_height = 1 + dice() % 30;
    out.image_width = out.tile_width + dice() % 90,
    out.image_height = out.tile_height + dice() % 90;
    for (std::uint32_t i = 0; i < count; ++i)
        out.places.push_back(
            {static_cast<std::uint32_t>(dice() % (out.image_width - out.tile_width + 1)),
             static_cast<std::uint32_t>(dice() % (out.image_height - out.tile_height + 1))});
    return out;
}

// 1 + the number of the tile of each pixel; 0: background. Fails where two pieces have a pixel.
std::vector<std::uint32_t> owners_of(const tile_set& tiles, const std::vector<piece>& pieces) {
    std::vector<std::uint32_t> out(std::size_t{tiles.image_width} * tiles.image_height);
    for (const piece& p : pieces)
        for (std::uint32_t y = 0; y < p.height; ++y)
            for (std::uint32_t x = 0; x < p.width; ++x) {
                EXPECT_EQ(p.left + tiles.places[p.tile].x, p.x);
                EXPECT_EQ(p.top + tiles.places[p.tile].y, p.y);
                std::uint32_t& owner = out.at(std::size_t{p.y + y} * tiles.image_width + p.x + x);
                EXPECT_EQ(owner, 0u);
                owner = p.tile + 1;
            }
    return out;
}

TEST(stitch_layout, every_pixel_belongs_to_the_last_tile_that_covers_it) {
    for (unsigned seed = 1; seed <= 60; ++seed) {
        const tile_set tiles = random_tiles(1 + seed % 25, seed);
        std::vector<std::uint32_t> expected(std::size_t{tiles.image_width} * tiles.image_height);
        for (std::uint32_t i = 0; i < tiles.places.size(); ++i)
            for (std::uint32_t y = 0; y < tiles.tile_height; ++y)
                for (std::uint32_t x = 0; x < tiles.tile_width; ++x)
                    expected[std::size_t{tiles.places[i].y + y} * tiles.image_width +
                             tiles.places[i].x + x] = i + 1;
        std::vector<piece> pieces;
        ASSERT_TRUE(owned_pieces(tiles, pieces).ok());
        ASSERT_EQ(owners_of(tiles, pieces), expected) << "seed " << seed;
        ASSERT_EQ(owners_of(tiles, cut(pieces, 1 + seed % 9, 1 + seed % 7)), expected)
            << "seed " << seed;
        for (const piece& part : cut(pieces, 5, 3))
            ASSERT_TRUE(part.width >= 1 && part.width <= 5 && part.height >= 1 && part.height <= 3);
    }
}

TEST(stitch_layout, a_line_divides_the_pixels) {
    const tile_set tiles = random_tiles(20, 7);
    std::vector<piece> all;
    ASSERT_TRUE(owned_pieces(tiles, all).ok());
    for (std::uint32_t split = 0; split <= tiles.image_width; ++split) {
        std::vector<piece> left = within(all, 0, split);
        const std::vector<piece> right = within(all, split, tiles.image_width);
        ASSERT_TRUE(std::all_of(left.begin(), left.end(),
                                [&](const piece& p) { return p.x + p.width <= split; }));
        ASSERT_TRUE(
            std::all_of(right.begin(), right.end(), [&](const piece& p) { return p.x >= split; }));
        ASSERT_EQ(pixels_of(left) + pixels_of(right), pixels_of(all));
        left.insert(left.end(), right.begin(), right.end());
        ASSERT_EQ(owners_of(tiles, left), owners_of(tiles, all));
    }
}

TEST(stitch_layout, shared_pages_are_those_with_bytes_of_both_sides) {
    for (const std::uint32_t width : {1u, 7u, 100u, 2016u, 2048u, 2049u, 5000u, 8192u})
        for (const std::uint32_t split : {0u, 1u, 2u, 7u, 1000u, 2016u, 2048u, 4999u, 8191u}) {
            if (split > width) continue;
            for (const std::uint64_t first : {0u, 64u, 4096u}) {
                std::set<std::uint64_t> left, right;
                for (std::uint64_t pixel = 0; pixel < std::uint64_t{width} * 13; ++pixel)
                    (pixel % width < split ? left : right).insert((first + 2 * pixel) / page_bytes);
                const auto both = static_cast<std::uint64_t>(
                    std::count_if(left.begin(), left.end(),
                                  [&](std::uint64_t page) { return right.count(page) != 0; }));
                ASSERT_EQ(shared_pages(width, 13, split, first), both)
                    << width << " columns, split " << split << ", from " << first;
            }
        }
}

std::vector<std::uint16_t> sharpened_once(const std::vector<std::uint16_t>& from,
                                          std::int64_t width, std::int64_t height) {
    std::vector<std::uint16_t> out(from.size());
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x) {
            std::int64_t around = 0;
            for (std::int64_t dy = -1; dy <= 1; ++dy)
                for (std::int64_t dx = -1; dx <= 1; ++dx)
                    around += (2 - std::abs(dx)) * (2 - std::abs(dy)) *
                              from[static_cast<std::size_t>(
                                  std::clamp<std::int64_t>(y + dy, 0, height - 1) * width +
                                  std::clamp<std::int64_t>(x + dx, 0, width - 1))];
            const std::int64_t pixel = from[static_cast<std::size_t>(y * width + x)];
            out[static_cast<std::size_t>(y * width + x)] = static_cast<std::uint16_t>(
                std::clamp<std::int64_t>(pixel + ((16 * pixel - around + 128) >> 8), 0, 65535));
        }
    return out;
}

// Larger than the blocks in which threads work, so that their margins meet.
TEST(stitch_threads, a_tile_in_blocks_is_as_the_whole_tile) {
    constexpr std::uint32_t width = 1100, height = 300;
    for (const std::uint32_t convolutions : {0u, 1u, 3u, 32u}) {
        std::vector<std::uint16_t> tile = random_pixels(std::size_t{width} * height, 3),
                                   image(tile.size());
        const std::vector<piece> pieces{{0, 0, 0, 401, height, 0, 0},
                                        {0, 401, 0, width - 401, 30, 401, 0},
                                        {0, 401, 30, width - 401, height - 30, 401, 30}};
        ASSERT_TRUE(make_on_threads({{tile.data(), 0, tile.size(), width, height},
                                     {image.data(), width},
                                     &pieces,
                                     convolutions},
                                    2)
                        .ok());
        for (std::uint32_t i = 0; i < convolutions; ++i) tile = sharpened_once(tile, width, height);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < tile.size(); ++i)
            wrong += image[i] != static_cast<std::uint16_t>(tile[i] << 8 | tile[i] >> 8);
        EXPECT_EQ(wrong, 0u) << convolutions << " convolutions";
    }
}

TEST(stitch_rows, are_the_same_bits_on_every_processor) {
    const std::vector<std::uint16_t> above = random_pixels(1100, 1), at = random_pixels(1100, 2),
                                     below = random_pixels(1100, 3);
    for (const std::uint32_t count : {1u, 2u, 15u, 16u, 17u, 1000u, most_columns})
        for (const bool left : {false, true})
            for (const bool right : {false, true}) {
                std::vector<std::uint16_t> plain(count + 1, 9), fast(count + 1, 9),
                    stored(count + 1, 9);
                sharpen_row_inline(above.data() + 1, at.data() + 1, below.data() + 1, plain.data(),
                                   count, left, right);
                sharpen_row(above.data() + 1, at.data() + 1, below.data() + 1, fast.data(), count,
                            left, right);
                ASSERT_EQ(plain, fast) << count << " pixels, " << row_code_name();
                store_row_inline(plain.data(), stored.data(), count);
                store_row(plain.data(), fast.data(), count);
                ASSERT_EQ(stored, fast) << count << " pixels stored, " << row_code_name();
            }
}

}  // namespace
}  // namespace penstock::stitch
