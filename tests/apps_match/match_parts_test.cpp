// The parts of penstock-match that have a simple truth to be compared with.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "lane_compare.hpp"
#include "match_view.hpp"

namespace penstock::match {
namespace {

std::vector<const micro_kernel*> kernels_here() {
    std::vector<const micro_kernel*> out{&plain_kernel};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0)
        out.push_back(&avx2_kernel);
    if (__builtin_cpu_supports("avx512f") != 0) out.push_back(&avx512_kernel);
#endif
    return out;
}

// Numbers of every size, so that the order of the additions shows in the bits.
std::vector<float> random_numbers(std::size_t count, unsigned seed) {
    std::mt19937 dice(seed);
    std::vector<float> out(count);
    for (float& number : out)
        number = std::ldexp(static_cast<float>(dice() % 65536), -static_cast<int>(dice() % 24)) *
                 (dice() % 2 == 0 ? 1.0f : -1.0f);
    return out;
}

TEST(match_kernels, add_one_number_after_the_other_with_one_rounding) {
    for (const std::uint32_t floats : {16u, 32u, 128u, 144u}) {
        const std::vector<float> queries = random_numbers(lane_queries * floats, floats),
                                 images = random_numbers(lane_images * floats, floats + 1);
        const float* rows[lane_queries];
        for (std::uint32_t i = 0; i < lane_queries; ++i) rows[i] = &queries[i * floats];
        for (const micro_kernel* kernel : kernels_here()) {
            alignas(64) float sums[lane_queries * lane_images];
            std::vector<float> packed_room(lane_images * floats + 16);
            float* packed = packed_room.data();
            while (reinterpret_cast<std::uintptr_t>(packed) % 64 != 0) ++packed;
            const std::uint32_t width = kernel->panel_images;
            for (std::uint32_t j = 0; j < lane_images; ++j)
                for (std::uint32_t k = 0; k < floats; ++k)
                    packed[j / width * floats * width + k * width + j % width] =
                        images[j * floats + k];
            for (float& sum : sums) sum = 0.5f;
            kernel->add_squares(rows, packed, floats, sums);
            for (std::uint32_t i = 0; i < lane_queries; ++i)
                for (std::uint32_t j = 0; j < lane_images; ++j) {
                    float expected = 0.5f;
                    for (std::uint32_t k = 0; k < floats; ++k) {
                        const float difference = queries[i * floats + k] - images[j * floats + k];
                        expected = std::fma(difference, difference, expected);
                    }
                    ASSERT_EQ(std::memcmp(&expected, &sums[i * lane_images + j], sizeof expected),
                              0)
                        << kernel->name << ", " << floats << " numbers: query " << i << ", image "
                        << j << ": " << sums[i * lane_images + j] << " for " << expected;
                }
        }
    }
}

// A search over what is described, in host memory.
struct small_search {
    std::vector<database_view> databases;
    std::vector<std::uint64_t> best;
    match_totals totals{};
    match_view view{};

    small_search(const std::vector<std::uint64_t>& images, std::uint32_t tile_images,
                 std::uint64_t queries, std::uint64_t group_queries) {
        std::uint64_t first_image = 0, first_tile = 0;
        for (const std::uint64_t count : images) {
            databases.push_back({-1, 4096, 64, count, first_image, first_tile});
            first_image += count;
            first_tile += (count + tile_images - 1) / tile_images;
        }
        best.assign(queries, no_match);
        view.databases = databases.data();
        view.best = best.data();
        view.totals = &totals;
        view.database_count = static_cast<std::uint32_t>(databases.size());
        view.tile_images = tile_images;
        view.tile_count = first_tile;
        view.query_count = queries;
        view.group_queries = group_queries;
        view.group_count =
            static_cast<std::uint32_t>((queries + group_queries - 1) / group_queries);
    }
};

TEST(match_items, meet_every_pair_once_and_earlier_images_first) {
    small_search s({0, 100, 0, 0, 64, 1, 0}, 64, 29, 12);
    std::vector<std::vector<int>> met(165, std::vector<int>(29, 0));
    std::uint64_t last = 0;
    for (std::uint64_t item = 0; item < s.view.item_count(); ++item) {
        const tile_place at = place_of(s.view, item);
        EXPECT_GE(at.number(0), last);
        last = at.number(0);
        ASSERT_GT(at.images, 0u);
        ASSERT_LE(at.first + at.images, s.databases[at.database].image_count);
        for (std::uint32_t i = 0; i < at.images; ++i) {
            EXPECT_EQ(at.byte_of(i), 4096 + (at.first + i) * 64);
            for (std::uint64_t q = at.query_begin; q < at.query_end; ++q) ++met[at.number(i)][q];
        }
    }
    for (const std::vector<int>& row : met)
        for (const int times : row) EXPECT_EQ(times, 1);
}

TEST(match_items, the_first_image_stays_and_queries_are_counted_once) {
    small_search s({200}, 64, 3, 3);
    note_match(s.view, 1, 150, 7);
    note_match(s.view, 1, 70, 90);
    note_match(s.view, 1, 71, 0);
    EXPECT_EQ(s.best[1], match_key(70, 90));
    EXPECT_EQ(s.totals.matched, 1u);
    // Live in the tiles up to its own, and in no later one.
    EXPECT_TRUE(is_live(s.view, place_of(s.view, 0), 1));
    EXPECT_TRUE(is_live(s.view, place_of(s.view, 1), 1));
    EXPECT_FALSE(is_live(s.view, place_of(s.view, 2), 1));
    EXPECT_TRUE(is_live(s.view, place_of(s.view, 2), 0));
    std::uint64_t next = 0, live[lane_queries];
    EXPECT_EQ(pick_live(s.view, place_of(s.view, 2), next, live), 2u);
    EXPECT_EQ(live[0], 0u);
    EXPECT_EQ(live[1], 2u);
}

std::uint64_t take_item(const match_view& view) {
    return take_item(lane{}, view, [] { return false; });
}

TEST(match_items, no_more_are_taken_when_all_have_a_match_or_after_an_error) {
    small_search s({200}, 64, 2, 2);
    EXPECT_EQ(take_item(s.view), 0u);
    note_match(s.view, 0, 5, 1);
    EXPECT_EQ(take_item(s.view), 1u);
    note_match(s.view, 1, 6, 1);
    EXPECT_EQ(take_item(s.view), s.view.item_count());
    small_search other({200}, 64, 2, 2);
    note_error(other.view, place_of(other.view, 3), -5);
    note_error(other.view, place_of(other.view, 0), -6);
    EXPECT_EQ(other.totals.code, -5);
    EXPECT_EQ(take_item(other.view), other.view.item_count());
}

// Images that become shorter while they are read.
struct broken_source {
    template <typename Visit>
    int visit(const tile_place&, std::uint64_t, std::uint64_t, const Visit&) const {
        return -ESTALE;
    }
};

TEST(match_items, an_error_of_the_source_is_kept_with_its_database) {
    small_search s({3, 5}, 64, 2, 2);
    const std::vector<float> queries(32);
    s.view.queries = queries.data();
    s.view.floats = 16;
    s.view.threshold = 1;
    alignas(64) float packed[16 * lane_images];
    compare_on_lane(broken_source{}, s.view, place_of(s.view, 1), packed);
    EXPECT_EQ(s.totals.code, -ESTALE);
    EXPECT_EQ(s.totals.failed, 1u);
    EXPECT_EQ(s.totals.pairs, 0u);
}

}  // namespace
}  // namespace penstock::match
