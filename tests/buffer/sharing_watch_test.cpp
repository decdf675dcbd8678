// When the buffer leaves a file in peace: where hardly any blocks are equal, and where looking for
// them takes longer than it saves.
#include <gtest/gtest.h>

#include "buffer/pool/dedu_directory.hpp"

namespace penstock::test {

namespace {

constexpr std::uint32_t blocks = 4;
constexpr std::uint64_t frames = 1024, window_pages = frames / blocks,
                        time_pages = 8 * window_pages;

// A file of which each page that is loaded is new. `hits`: for each of these.
struct played_file {
    std::uint32_t found = 1;  // of four blocks
    std::uint64_t hits = 1, read_ns = 10'000, look_ns = 100;
    double shared = 0.25;
};
void play(buffer::sharing_watch& watch, const played_file& file, std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages && !watch.rests(); ++i) {
        for (std::uint64_t hit = 0; hit < file.hits; ++hit) watch.hit();
        watch.looked(blocks, file.found);
        watch.loaded(blocks, file.read_ns, file.look_ns, file.shared);
    }
}
bool is_left_in_peace(const played_file& file, std::uint64_t pages) {
    buffer::sharing_watch watch(frames);
    play(watch, file, pages);
    return watch.rests();
}

}  // namespace

TEST(sharing_watch, leaves_in_peace_where_no_blocks_are_equal) {
    EXPECT_TRUE(is_left_in_peace({.found = 0}, window_pages));
    EXPECT_FALSE(is_left_in_peace({.found = 0}, window_pages - 1));
    EXPECT_FALSE(is_left_in_peace({}, 100 * time_pages));
}

// A hit in four is one by sharing, and saves a read.
TEST(sharing_watch, leaves_in_peace_where_it_takes_longer_than_it_saves) {
    EXPECT_FALSE(is_left_in_peace({.look_ns = 2'400}, 100 * time_pages));
    EXPECT_TRUE(is_left_in_peace({.look_ns = 2'600}, time_pages));
    EXPECT_FALSE(is_left_in_peace({.look_ns = 2'600}, time_pages - 1));
    EXPECT_FALSE(is_left_in_peace({.hits = 2, .look_ns = 4'900}, 100 * time_pages));
    EXPECT_TRUE(is_left_in_peace({.hits = 2, .look_ns = 5'100}, time_pages));
    EXPECT_TRUE(is_left_in_peace({.read_ns = 1'000, .look_ns = 300}, time_pages));
    EXPECT_TRUE(is_left_in_peace({.look_ns = 1, .shared = 0}, time_pages));
    EXPECT_TRUE(is_left_in_peace({.hits = 0}, time_pages));
}

// Where the time that reads take is not known, the watch concludes nothing from it.
TEST(sharing_watch, goes_on_where_times_are_not_known) {
    EXPECT_FALSE(is_left_in_peace({.read_ns = 0, .look_ns = 1'000'000}, 100 * time_pages));
}

TEST(sharing_watch, tries_again_after_a_rest) {
    buffer::sharing_watch watch(frames);
    const auto rest = [&] {
        ASSERT_TRUE(watch.rests());
        for (std::uint64_t i = 0; i < 32 * window_pages; ++i) {
            ASSERT_TRUE(watch.rests()) << i;
            watch.hit();  // of these nothing is known of what they save
            watch.rested(blocks);
        }
        ASSERT_FALSE(watch.rests());
    };
    play(watch, {.look_ns = 1'000'000}, time_pages);
    rest();
    play(watch, {.hits = 0}, time_pages);
    rest();
    play(watch, {}, 100 * time_pages);
    EXPECT_FALSE(watch.rests());
}

}  // namespace penstock::test
