// The extent allocator against a bitmap that does the same job slowly.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "host/extent_allocator.hpp"
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

// First fit in a bitmap: the start, or -1.
std::int64_t first_fit(const std::vector<bool>& used, std::uint64_t units) {
    std::uint64_t run = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
        run = used[i] ? 0 : run + 1;
        if (run == units) return static_cast<std::int64_t>(i + 1 - units);
    }
    return -1;
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
                ASSERT_EQ(got ? static_cast<std::int64_t>(*got) : -1, first_fit(used, units)) << "seed " << seed << " step " << step;
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
            ASSERT_EQ(arena.free_units(), static_cast<std::uint64_t>(std::count(used.begin(), used.end(), false)));
        }
    }
}

}  // namespace penstock::test
