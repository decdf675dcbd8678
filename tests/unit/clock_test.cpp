// Which frame the clock takes.
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "unit/hand_cache.hpp"

namespace penstock::engine::test {

using penstock::test::hand_cache;

namespace {

std::int64_t take(hand_cache& c, std::uint32_t& frame, bool may_wait = true) {
    wait_deadline deadline(lane{}, c.view.frame_wait_ns);
    keep_nothing nothing;
    return take_frame(lane{}, c.view, 0, may_wait, deadline, frame, nothing);
}

// All frames hold pages of file 0, words 0 to 7.
void fill(hand_cache& c) {
    c.add_file(0, 0, 8);
    for (std::uint32_t i = 0; i < hand_cache::frames; ++i) c.place(0, i, i);
    c.fill_done = 1;
}

}  // namespace

TEST(clock, every_fresh_frame_once_before_any_page_is_dropped) {
    hand_cache c;
    c.add_file(0, 0, 8);
    std::set<std::uint32_t> taken;
    for (std::uint32_t i = 0; i < hand_cache::frames; ++i) {
        std::uint32_t frame = 99;
        ASSERT_EQ(take(c, frame), 0);
        EXPECT_TRUE(taken.insert(frame).second);
        c.place(0, i, frame);
    }
    EXPECT_EQ(c.counted(count_evictions), 0u);
    std::uint32_t frame = 99;
    EXPECT_EQ(take(c, frame), 0);
    EXPECT_EQ(c.counted(count_evictions), 1u);
}

TEST(clock, takes_what_was_not_used_since_it_passed) {
    hand_cache c;
    fill(c);
    for (std::uint32_t i = 0; i < hand_cache::frames; ++i)
        if (i != 5) c.page_words[i] |= use_bit;
    std::uint32_t frame = 99;
    ASSERT_EQ(take(c, frame), 0);
    EXPECT_EQ(frame, 5u);
    EXPECT_TRUE(is_absent(c.page_words[5]));
    EXPECT_EQ(c.frame_words[5], frame_busy);
    for (std::uint32_t i = 0; i < 5; ++i)
        EXPECT_EQ(c.page_words[i] & use_bit, 0u) << "the hand passed " << i;
    for (std::uint32_t i = 6; i < 8; ++i)
        EXPECT_NE(c.page_words[i] & use_bit, 0u) << "the hand did not come to " << i;
}

TEST(clock, all_used_is_no_reason_to_fail) {
    hand_cache c;
    fill(c);
    for (auto& word : c.page_words) word |= is_valid(word) ? use_bit : 0;
    std::uint32_t frame = 99;
    EXPECT_EQ(take(c, frame), 0);
}

TEST(clock, a_used_page_of_a_closed_file_goes_at_once) {
    hand_cache c;
    fill(c);
    c.file_words[0] = make_file_word(file_live, 1, 0);
    c.page_words[0] |= use_bit;
    std::uint32_t frame = 99;
    ASSERT_EQ(take(c, frame), 0);
    EXPECT_EQ(frame, 0u);
}

TEST(clock, passes_over_pinned_loading_and_busy) {
    hand_cache c;
    fill(c);
    for (std::uint32_t i = 0; i < 8; ++i) pin(&c.page_words[i]);
    unpin(&c.page_words[6]);
    c.page_words[2] = state_loading | pin_one;
    c.frame_words[2] = frame_busy;
    std::uint32_t frame = 99;
    ASSERT_EQ(take(c, frame), 0);
    EXPECT_EQ(frame, 6u);
}

TEST(clock, a_frame_word_whose_page_went_elsewhere_is_passed_over) {
    hand_cache c;
    fill(c);
    // Word 0 names frame 7 by now; frame 0 still claims to be its.
    c.page_words[0] = state_valid | 7;
    c.page_words[7] = 0;
    c.frame_words[7] = frame_busy;
    std::uint32_t frame = 99;
    ASSERT_EQ(take(c, frame), 0);
    EXPECT_EQ(frame, 1u);
    EXPECT_EQ(c.page_words[0], state_valid | 7);
}

TEST(clock, all_pinned_ends_with_an_error_after_the_frame_wait) {
    hand_cache c;
    fill(c);
    for (std::uint32_t i = 0; i < 8; ++i) pin(&c.page_words[i]);
    std::uint32_t frame = 99;
    EXPECT_EQ(take(c, frame, false), -ENOBUFS);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(take(c, frame), -ENOBUFS);
    EXPECT_GE(std::chrono::steady_clock::now() - start,
              std::chrono::nanoseconds(c.view.frame_wait_ns));
    c.control.abort_code = -ECANCELED;
    EXPECT_EQ(take(c, frame), -ECANCELED);
    for (std::uint32_t i = 0; i < 8; ++i)
        EXPECT_EQ(c.page_words[i], state_valid | pin_one | i) << "nothing was changed";
}

}  // namespace penstock::engine::test
