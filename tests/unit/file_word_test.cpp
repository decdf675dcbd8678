// File words, name words and descriptors, step by step.
#include <gtest/gtest.h>

#include "penstock/engine/file_word.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine::test {

TEST(file_word, life_of_a_slot) {
    file_word word = 0;
    opening_count openings = 0;
    EXPECT_EQ(file_state(word), file_vacant);
    ASSERT_TRUE(begin_fill(&word, word, 1));
    EXPECT_EQ(file_state(word), file_busy);
    EXPECT_FALSE(try_reference(&word, 1) || try_reopen(&word, 1, &openings))
        << "not while it is being filled";
    end_fill(&word, 1);
    EXPECT_TRUE(is_open(word, 1));
    EXPECT_EQ(references_of(word), 1u);
    EXPECT_TRUE(try_reference(&word, 1));
    EXPECT_FALSE(begin_retire(&word, word)) << "open";
    EXPECT_TRUE(try_release(&word, 1));
    EXPECT_TRUE(try_release(&word, 1));
    EXPECT_FALSE(try_release(&word, 1)) << "closed";
    EXPECT_TRUE(is_closed(word));
    EXPECT_FALSE(try_reference(&word, 1)) << "a closed file is reopened through the host only";
    EXPECT_TRUE(try_reopen(&word, 1, &openings));
    EXPECT_TRUE(try_release(&word, 1));
    ASSERT_TRUE(begin_retire(&word, word));
    EXPECT_FALSE(try_reopen(&word, 1, &openings));
    undo_retire(&word, 1);
    EXPECT_TRUE(is_closed(word));
    ASSERT_TRUE(begin_retire(&word, word));
    end_retire(&word, 1);
    EXPECT_EQ(file_state(word), file_vacant);
    EXPECT_EQ(file_generation(word), 1u) << "so that an old answer can be told";
    ASSERT_TRUE(begin_fill(&word, word, 2));
    end_fill(&word, 2);
    EXPECT_FALSE(try_reference(&word, 1) || try_reopen(&word, 1, &openings) ||
                 try_release(&word, 1))
        << "another life";
    EXPECT_EQ(references_of(word), 1u);
}

TEST(file_word, an_adopted_file_is_closed) {
    file_word word = make_file_word(file_vacant, 4, 0);
    opening_count openings = 0;
    ASSERT_TRUE(begin_fill(&word, word, 5));
    end_adopt(&word, 5);
    EXPECT_TRUE(is_closed(word));
    EXPECT_TRUE(try_reopen(&word, 5, &openings));
}

TEST(file_word, a_name_knows_an_open_file_until_it_is_closed) {
    file_word word = make_file_word(file_live, 1, 0);
    opening_count openings = 7;
    ASSERT_TRUE(try_reopen(&word, 1, &openings));
    const opening_count known = openings_of(&openings);
    EXPECT_EQ(known, 8u);
    EXPECT_TRUE(try_reopen(&word, 1, &openings)) << "open by now";
    EXPECT_EQ(openings_of(&openings), known);
    EXPECT_TRUE(try_reference_by_name(&word, 1, &openings, known, nullptr));
    EXPECT_FALSE(try_reference_by_name(&word, 1, &openings, known - 1, nullptr));
    EXPECT_FALSE(try_reference_by_name(&word, 2, &openings, known, nullptr)) << "another life";
    std::uint32_t writers = 0;
    EXPECT_FALSE(try_reference_by_name(&word, 1, &openings, known, &writers));
    writers = 1;
    EXPECT_TRUE(try_reference_by_name(&word, 1, &openings, known, &writers));
    EXPECT_EQ(references_of(word), 4u);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(try_release(&word, 1));
    EXPECT_FALSE(try_reference_by_name(&word, 1, &openings, known, nullptr)) << "closed";
    ASSERT_TRUE(try_reopen(&word, 1, &openings));
    EXPECT_FALSE(try_reference_by_name(&word, 1, &openings, known, nullptr)) << "open anew";
}

TEST(file_word, later_generations_in_a_circle) {
    EXPECT_TRUE(is_later_generation(1, 0));
    EXPECT_TRUE(is_later_generation(1, 1023)) << "1023, then 1";
    EXPECT_TRUE(is_later_generation(512, 1));
    EXPECT_FALSE(is_later_generation(5, 5));
    EXPECT_FALSE(is_later_generation(4, 5));
    EXPECT_FALSE(is_later_generation(1023, 1));
}

TEST(file_word, descriptors_are_never_negative_and_come_apart_again) {
    for (const std::uint32_t slot : {0u, 1u, 65535u, max_file_slots - 1})
        for (const std::uint32_t generation : {1u, 512u, 1023u})
            for (const std::uint32_t access : {may_read, may_write, may_read_write}) {
                const int fd = make_descriptor(slot, generation, access);
                EXPECT_GE(fd, 0);
                EXPECT_EQ(descriptor_slot(fd), slot);
                EXPECT_EQ(descriptor_generation(fd), generation);
                EXPECT_EQ(descriptor_access(fd), access);
            }
}

TEST(name_word, every_change_is_another_word) {
    name_word word = 0;
    const name_word unused = word;
    ASSERT_TRUE(try_own_name(&word, unused));
    EXPECT_EQ(name_state(word), name_busy);
    EXPECT_FALSE(try_own_name(&word, unused));
    EXPECT_FALSE(name_unchanged(&word, unused));
    settle_name(&word, name_ready);
    const name_word ready = load_name_for_read(&word);
    EXPECT_EQ(name_state(ready), name_ready);
    EXPECT_TRUE(name_unchanged(&word, ready));
    ASSERT_TRUE(try_own_name(&word, ready));
    settle_name(&word, name_ready);
    EXPECT_FALSE(name_unchanged(&word, ready)) << "ready again, with another name perhaps";
}

TEST(name_lock, one_holder) {
    std::uint32_t lock = 0;
    EXPECT_TRUE(try_lock(&lock));
    EXPECT_FALSE(try_lock(&lock));
    unlock(&lock);
    EXPECT_TRUE(try_lock(&lock));
}

}  // namespace penstock::engine::test
