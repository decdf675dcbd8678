// The extent allocator against a bitmap that does the same job slowly.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "files/extent_allocator.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::test {

using host::extent_allocator;

TEST(extent_allocator, gives_out_everything_and_takes_everything_back) {
    extent_allocator arena(100);
    EXPECT_EQ(arena.free_units(), 100u);
    const auto a = arena.take(60), b = arena.take(40);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(*a, 0u);
    EXPECT_EQ(*b, 60u);
    EXPECT_FALSE(arena.take(1));
    EXPECT_TRUE(arena.give(*a, 60));
    EXPECT_TRUE(arena.give(*b, 40));
    EXPECT_EQ(arena.free_units(), 100u);
    EXPECT_EQ(arena.free_pieces(), 1u);
    EXPECT_TRUE(arena.take(100));
}

TEST(extent_allocator, refuses_what_it_did_not_give_out) {
    extent_allocator arena(100);
    EXPECT_FALSE(arena.take(0));
    EXPECT_FALSE(arena.take(101));
    EXPECT_FALSE(arena.take(UINT64_MAX));
    EXPECT_FALSE(arena.give(0, 1));
    EXPECT_FALSE(arena.give(99, 2));
    EXPECT_FALSE(arena.give(100, 1));
    EXPECT_FALSE(arena.give(UINT64_MAX, 2));
    EXPECT_FALSE(arena.give(1, UINT64_MAX));
    const auto piece = arena.take(10);
    ASSERT_TRUE(piece);
    EXPECT_FALSE(arena.give(*piece, 0));
    EXPECT_FALSE(arena.give(*piece, 11)) << "the eleventh is free already";
    EXPECT_TRUE(arena.give(*piece, 10));
    EXPECT_FALSE(arena.give(*piece, 10)) << "twice";
    EXPECT_EQ(arena.free_units(), 100u);
}

TEST(extent_allocator, nothing_to_give_of_an_empty_range) {
    extent_allocator arena(0);
    EXPECT_FALSE(arena.take(1));
    EXPECT_FALSE(arena.give(0, 1));
    EXPECT_EQ(arena.free_units(), 0u);
}

// The first of the shortest free runs of a bitmap that are long enough: its start, or -1.
std::int64_t best_fit(const std::vector<bool>& used, std::uint64_t units) {
    std::int64_t best = -1;
    std::uint64_t best_length = 0, run = 0;
    for (std::size_t i = 0; i <= used.size(); ++i) {
        if (i < used.size() && !used[i]) {
            ++run;
            continue;
        }
        if (run >= units && (best < 0 || run < best_length)) {
            best = static_cast<std::int64_t>(i - run);
            best_length = run;
        }
        run = 0;
    }
    return best;
}

TEST(extent_allocator, does_as_a_bitmap_does) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        constexpr std::uint64_t size = 300;
        extent_allocator arena(size);
        std::vector<bool> used(size);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> held;
        for (std::uint64_t step = 0; step < 3000; ++step) {
            const std::uint64_t r = mix64(seed * 1000003 + step);
            if (r % 2 == 0) {
                const std::uint64_t units = 1 + (r >> 8) % (r % 10 == 0 ? 100 : 12);
                const auto got = arena.take(units);
                ASSERT_EQ(got ? static_cast<std::int64_t>(*got) : -1, best_fit(used, units))
                    << "seed " << seed << " step " << step;
                if (!got) continue;
                std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(*got), units, true);
                held.emplace_back(*got, units);
            } else if (!held.empty()) {
                const std::size_t which = (r >> 8) % held.size();
                const auto [start, units] = held[which];
                held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
                ASSERT_TRUE(arena.give(start, units));
                std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(start), units, false);
            }
            ASSERT_EQ(arena.free_units(),
                      static_cast<std::uint64_t>(std::count(used.begin(), used.end(), false)));
        }
    }
}

// Thousands of holes that are too short must not be looked at one by one: what is taken and given
// back here would take minutes so.
TEST(extent_allocator, many_short_holes_cost_nothing) {
    constexpr std::uint64_t holes = 200'000;
    extent_allocator arena(4 * holes);
    for (std::uint64_t i = 0; i < holes; ++i) ASSERT_TRUE(arena.take(2));
    for (std::uint64_t i = 0; i < holes; i += 2) ASSERT_TRUE(arena.give(2 * i, 2));
    const std::clock_t start = std::clock();  // processor time: the machine may be busy
    for (std::uint64_t i = 0; i < holes; ++i) {
        const auto got = arena.take(3);
        ASSERT_TRUE(got);
        ASSERT_TRUE(arena.give(*got, 3));
    }
    EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);
}

}  // namespace penstock::test
