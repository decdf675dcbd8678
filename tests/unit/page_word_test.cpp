// The steps of a page word, one by one: which fields each changes and which it must not.
#include <gtest/gtest.h>

#include "penstock/engine/page_word.hpp"

namespace penstock::engine::test {

constexpr page_word with_pins(std::uint64_t n) { return n * pin_one; }

TEST(page_word, fields_do_not_overlap) {
    EXPECT_EQ(frame_mask & generation_mask, 0u);
    EXPECT_EQ((frame_mask | generation_mask) & pin_mask, 0u);
    EXPECT_EQ((frame_mask | generation_mask | pin_mask) & (dirty_bit | use_bit | state_mask), 0u);
    EXPECT_EQ(frame_mask | generation_mask | pin_mask | dirty_bit | use_bit | state_mask,
              ~page_word{0});
    EXPECT_LT(pin_limit * 2, (pin_mask / pin_one) + 2)
        << "as many threads may go over the limit for a moment";
}

TEST(page_word, zero_is_an_absent_page) {
    EXPECT_TRUE(is_absent(0));
    EXPECT_FALSE(is_valid(0) || is_loading(0));
}

TEST(page_word, claim_pins_and_keeps_other_pins_and_the_generation) {
    const page_word before = with_pins(3) | 5 * generation_one | use_bit;
    page_word word = before;
    EXPECT_TRUE(try_claim(&word, before));
    EXPECT_TRUE(is_loading(word));
    EXPECT_EQ(pins_of(word), 4u);
    EXPECT_EQ(word & generation_mask, 5 * generation_one);
    EXPECT_EQ(frame_of(word), 0u);
    EXPECT_EQ(word & use_bit, 0u) << "a page begins unused";
    EXPECT_FALSE(try_claim(&word, before)) << "the word has changed";
}

TEST(page_word, publish_names_the_frame_and_keeps_pins) {
    page_word word = 0;
    ASSERT_TRUE(try_claim(&word, 0));
    pin(&word);
    publish(&word, 0x0abcdef);
    EXPECT_TRUE(is_valid(word));
    EXPECT_EQ(frame_of(word), 0x0abcdefu);
    EXPECT_EQ(pins_of(word), 2u);
    page_word last = state_loading | pin_one;
    publish(&last, frame_mask);
    EXPECT_TRUE(is_valid(last));
    EXPECT_EQ(frame_of(last), frame_mask);
    EXPECT_EQ(last & generation_mask, 0u);
}

TEST(page_word, publish_and_unpin_takes_one_pin_and_leaves_those_of_others) {
    page_word word = 3 * generation_one;
    ASSERT_TRUE(try_claim(&word, word));
    pin(&word);  // a reader that is about to find out
    publish_and_unpin(&word, frame_mask);
    EXPECT_TRUE(is_valid(word));
    EXPECT_EQ(frame_of(word), frame_mask);
    EXPECT_EQ(pins_of(word), 1u);
    EXPECT_EQ(word & generation_mask, 3 * generation_one);
}

TEST(page_word, abandon_drops_one_pin_and_counts_the_generation) {
    page_word word = 7 * generation_one;
    ASSERT_TRUE(try_claim(&word, word));
    pin(&word);  // a reader that is about to find out
    abandon(&word);
    EXPECT_TRUE(is_absent(word));
    EXPECT_EQ(pins_of(word), 1u);
    EXPECT_EQ(word & generation_mask, 8 * generation_one);
    EXPECT_EQ(word & use_bit, 0u);
    unpin(&word);
    EXPECT_EQ(pins_of(word), 0u);
}

TEST(page_word, evict_needs_the_exact_word) {
    const page_word valid = state_valid | use_bit | 9 * generation_one | 77;
    page_word word = valid;
    pin(&word);
    EXPECT_FALSE(try_evict(&word, valid)) << "pinned meanwhile";
    unpin(&word);
    EXPECT_TRUE(try_evict(&word, valid));
    EXPECT_EQ(word, 10 * generation_one) << "absent, no frame, no use bit";
}

TEST(page_word, generation_goes_round_without_touching_its_neighbours) {
    const page_word last = state_valid | generation_mask | 3;
    page_word word = last;
    EXPECT_TRUE(try_evict(&word, last));
    EXPECT_EQ(word, 0u);
}

TEST(page_word, use_bit_is_set_once_and_aged) {
    page_word word = state_valid | 1;
    touch(&word, word);
    EXPECT_NE(word & use_bit, 0u);
    const page_word seen = word;
    word &= ~use_bit;
    touch(&word, seen);
    EXPECT_EQ(word & use_bit, 0u) << "a reader that saw the bit set does not write";
    word = ~page_word{0};
    age(&word);
    EXPECT_EQ(word, ~use_bit);
}

TEST(page_word, unchanged_looks_at_state_frame_and_generation_only) {
    const page_word seen = state_valid | 4 * generation_one | 5;
    page_word word = seen | use_bit | with_pins(9);
    EXPECT_TRUE(validate(&word, seen));
    for (const page_word other :
         {seen + 1, seen + generation_one, seen ^ (state_valid ^ state_loading), page_word{0}}) {
        word = other;
        EXPECT_FALSE(validate(&word, seen)) << std::hex << other;
    }
    // Evicted and loaded again into the same frame: only the generation tells.
    word = seen;
    ASSERT_TRUE(try_evict(&word, seen));
    ASSERT_TRUE(try_claim(&word, word));
    publish(&word, 5);
    unpin(&word);
    EXPECT_FALSE(validate(&word, seen));
}

}  // namespace penstock::engine::test
