// What a mount keeps of files: inode numbers, which are unique, stable, and equal to the source's
// own where possible; and when the kernel may keep the pages of a file at an open.
#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

#include "mount/file_numbers.hpp"
#include "mount/kept_pages.hpp"

namespace penstock::mount {

namespace {

class unique_numbers : public testing::Test {
protected:
    // Asks twice, and records the owner of the number.
    std::uint64_t ask(dev_t device, ino_t inode) {
        const std::uint64_t number = numbers_.of({device, inode});
        EXPECT_EQ(numbers_.of({device, inode}), number);
        const auto [owner, is_new] = owners_.try_emplace(number, inode_key{device, inode});
        EXPECT_EQ(owner->second, (inode_key{device, inode}))
            << "number " << number << " is given twice";
        EXPECT_NE(number, 0u);
        return number;
    }

    file_numbers numbers_{1};
    std::unordered_map<std::uint64_t, inode_key> owners_;
};

}  // namespace

TEST_F(unique_numbers, the_own_device_keeps_what_it_has) {
    for (const ino_t inode :
         {ino_t{1}, ino_t{2}, ino_t{1} << 47, (ino_t{1} << 48) - 1, ino_t{5} << 48 | 7, ~ino_t{0}})
        EXPECT_EQ(ask(1, inode), inode);
}

TEST_F(unique_numbers, other_devices_never_meet) {
    for (ino_t inode = 1; inode < 200; ++inode)
        for (dev_t device = 1; device < 50; ++device) ask(device, inode);
    // The own device comes late with numbers that others have by now.
    for (ino_t upper = 0; upper < 60; ++upper)
        for (ino_t inode = 1; inode < 20; ++inode) ask(1, upper << 48 | inode);
}

TEST_F(unique_numbers, hashed_numbers_of_several_devices_never_meet) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 300'000; ++i) ask(1 + i % 3, random() | 1);
    for (dev_t device = 1; device < 9; ++device)
        for (ino_t inode = 1; inode < 300; ++inode)
            ask(device, inode | (inode % 3 == 0 ? ino_t{0xfffe} << 48 : 0));
}

namespace {

constexpr host::file_identity first{1, 2, 3, 4, 5}, second{1, 2, 3, 6, 6};

}  // namespace

TEST(kept_pages, are_kept_when_the_program_whose_open_dropped_others_has_closed) {
    kept_pages pages;
    const kept_pages::answer one = pages.opened(first), two = pages.opened(first);
    EXPECT_FALSE(one.keeps);
    EXPECT_FALSE(two.keeps) << "the first may be dropping them still";
    pages.dropped(two.dropping);
    EXPECT_TRUE(pages.opened(first).keeps);
    pages.dropped(one.dropping);
    EXPECT_TRUE(pages.opened(first).keeps);
    EXPECT_FALSE(pages.opened(second).keeps);
    EXPECT_FALSE(pages.opened(second).keeps);
}

TEST(kept_pages, are_not_kept_for_a_close_of_an_earlier_version) {
    kept_pages pages;
    const kept_pages::answer one = pages.opened(first), two = pages.opened(second);
    pages.dropped(one.dropping);
    EXPECT_FALSE(pages.opened(second).keeps);
    EXPECT_FALSE(pages.opened(first).keeps);
    pages.dropped(two.dropping);
    EXPECT_FALSE(pages.opened(first).keeps);
}

TEST(kept_pages, that_are_forgotten_stay_so_at_a_close_of_before) {
    kept_pages pages;
    const kept_pages::answer one = pages.opened(first);
    pages.forget();
    pages.dropped(one.dropping);
    const kept_pages::answer two = pages.opened(first);
    EXPECT_FALSE(two.keeps);
    pages.dropped(one.dropping);
    EXPECT_FALSE(pages.opened(first).keeps);
    pages.dropped(two.dropping);
    EXPECT_TRUE(pages.opened(first).keeps);
}

}  // namespace penstock::mount
