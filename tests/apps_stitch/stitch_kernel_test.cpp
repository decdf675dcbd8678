// The kernel's text, run by CPU threads of a played CUDA, beside the code of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "sharpen_kernel.cuh"

namespace penstock::stitch {

// The shared memory of a block: as much as the largest has, and marks behind it.
constexpr std::size_t most_shared = 232448 / sizeof(std::uint16_t);
std::uint16_t rooms[most_shared + 64];

namespace {

struct played_case {
    std::uint32_t width, height, convolutions, side;
};

void run_block(unsigned number, const tiles_in_memory& tiles, const image_in_memory& image,
               const std::vector<piece>& pieces, std::uint32_t convolutions) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < played_threads; ++i)
        threads.emplace_back([&, i] {
            threadIdx.x = i;
            blockIdx.x = number;
            sharpen_pieces(tiles, image, pieces.data(), convolutions);
        });
    for (std::thread& thread : threads) thread.join();
}

void compare(const played_case& c, std::mt19937& dice) {
    constexpr std::uint16_t mark = 0x5aa5;
    const std::uint64_t stride = std::uint64_t{c.width} * c.height + dice() % 50;
    std::vector<std::uint16_t> memory(stride * 3);
    for (std::uint16_t& pixel : memory)
        pixel = static_cast<std::uint16_t>(dice() % 3 != 0 ? dice() % 65536 : dice() % 2 * 65535);
    const tiles_in_memory tiles{memory.data() + stride, 1, stride, c.width, c.height};
    const std::uint32_t cut_off = c.width > 3 ? 1 : 0, image_width = c.width + 5;
    const std::vector<piece> whole{{2, cut_off, 0, c.width - 2 * cut_off, c.height, 3, 1}};
    std::vector<std::uint16_t> played(std::size_t{image_width} * (c.height + 2), mark),
        expected = played;
    const std::vector<piece> pieces = cut(whole, c.side, c.side);
    const std::size_t room = shared_bytes_for(c.side, c.convolutions) / sizeof(std::uint16_t);
    ASSERT_LE(room, most_shared);
    std::fill(std::begin(rooms), std::end(rooms), mark);
    for (unsigned i = 0; i < pieces.size(); ++i)
        run_block(i, tiles, {played.data(), image_width}, pieces, c.convolutions);
    ASSERT_TRUE(std::all_of(rooms + room, std::end(rooms), [](std::uint16_t cell) {
        return cell == mark;
    })) << "the block wrote behind its shared memory";
    ASSERT_TRUE(
        make_on_threads({tiles, {expected.data(), image_width}, &whole, c.convolutions}, 2).ok());
    ASSERT_EQ(played, expected) << c.width << " by " << c.height << ", " << c.convolutions
                                << " convolutions, pieces of " << c.side;
}

TEST(stitch_kernel, finds_the_same_bits_as_threads) {
    std::mt19937 dice(1);
    for (const played_case& c : {played_case{1, 1, 3, 64},
                                 {2, 90, 32, 128},
                                 {150, 1, 5, 64},
                                 {130, 129, 0, 64},
                                 {200, 140, 1, 64},
                                 {129, 130, 4, 64},
                                 {190, 131, 9, 128},
                                 {150, 160, 32, 128},
                                 {70, 60, 32, 32},
                                 {40, 90, 17, 8}})
        compare(c, dice);
}

}  // namespace
}  // namespace penstock::stitch
