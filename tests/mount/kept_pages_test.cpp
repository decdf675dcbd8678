// When a mount lets the kernel keep the pages of a file at an open.
#include <gtest/gtest.h>

#include "mount/kept_pages.hpp"

namespace penstock::test {

namespace {

using mount::kept_pages;
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

}  // namespace penstock::test
