// The name table, the attaching of files and the room for their growth, with the host played by
// hand.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "penstock/engine/page_table.hpp"
#include "unit/hand_cache.hpp"

namespace penstock::engine::test {

using penstock::test::hand_cache;

namespace {

// The text must outlive the key.
name_key key_of(const char* name) {
    const auto bytes = static_cast<std::uint32_t>(std::strlen(name));
    return {name, bytes, hash_name(name, bytes)};
}

// Enters the name as open_name would, for file `slot`, whose generation is 1; its path lies at 8 *
// slot of the arena.
std::uint32_t enter(hand_cache& c, const char* name, std::uint32_t slot) {
    std::uint32_t at = 0;
    EXPECT_TRUE(try_enter_name(c.view, key_of(name), at)) << name;
    name_slot& entry = c.name_slots[at];
    remember_path(c.view, entry, key_of(name), 8 * slot + 1);
    entry.file_slot = slot;
    entry.generation = 1;
    settle_name(&entry.word, name_ready);
    return at;
}

open_answer answer_for(std::uint32_t slot, std::uint32_t generation) {
    open_answer answer{};
    answer.file_slot = slot;
    answer.generation = generation;
    answer.size_bytes = 1500;
    answer.table = 8;
    return answer;
}

std::int64_t attach(hand_cache& c, const open_answer& answer) {
    wait_deadline deadline(lane{}, 20'000'000);
    return attach_file(lane{}, c.view, answer, deadline);
}

}  // namespace

TEST(name_table, finds_what_was_entered_and_nothing_else) {
    hand_cache c;
    enter(c, "a", 0);
    enter(c, "some/longer/name.bin", 1);
    name_match found{};
    ASSERT_TRUE(find_name(c.view, key_of("a"), found));
    EXPECT_EQ(found.file_slot, 0u);
    ASSERT_TRUE(find_name(c.view, key_of("some/longer/name.bin"), found));
    EXPECT_EQ(found.file_slot, 1u);
    for (const char* other : {"b", "A", "a ", "aa", "some/longer/name.bim", "some/longer/name.bi"})
        EXPECT_FALSE(find_name(c.view, key_of(other), found)) << other;
}

TEST(name_table, an_equal_hash_is_not_an_equal_name) {
    hand_cache c;
    c.add_file(0, 0, 1);
    enter(c, "name one", 0);
    name_key other = key_of("name two");
    other.hash = key_of("name one").hash;
    name_match found{};
    EXPECT_FALSE(find_name(c.view, other, found));
    // Both can be entered, and each finds its own.
    std::uint32_t at = 0;
    ASSERT_TRUE(try_enter_name(c.view, other, at));
    remember_path(c.view, c.name_slots[at], other, 17);
    c.name_slots[at].file_slot = 2;
    settle_name(&c.name_slots[at].word, name_ready);
    ASSERT_TRUE(find_name(c.view, other, found));
    EXPECT_EQ(found.file_slot, 2u);
    ASSERT_TRUE(find_name(c.view, key_of("name one"), found));
    EXPECT_EQ(found.file_slot, 0u);
}

TEST(name_table, a_busy_slot_is_met_by_its_hash) {
    hand_cache c;
    std::uint32_t at = 0;
    ASSERT_TRUE(try_enter_name(c.view, key_of("x"), at));
    name_match found{};
    ASSERT_TRUE(find_name(c.view, key_of("x"), found));
    EXPECT_EQ(name_state(found.word), name_busy);
    EXPECT_EQ(found.slot, at);
    EXPECT_FALSE(try_enter_name(c.view, key_of("x"), at)) << "another thread is entering it";
    EXPECT_EQ(check_invariants(c.view).rule, std::string("no name is busy"));
}

// Names of closed files come first.
TEST(name_table, a_new_name_takes_the_slot_of_a_closed_file_or_else_of_an_open_one) {
    hand_cache c;
    for (std::uint32_t slot = 0; slot < hand_cache::files; ++slot)
        c.file_words[slot] = make_file_word(file_live, 1, 1);
    for (std::uint32_t i = 0; i < hand_cache::names; ++i)
        enter(c, ("open " + std::to_string(i)).c_str(), i % hand_cache::files);
    std::uint32_t at = 0;
    ASSERT_TRUE(try_release(&c.file_words[3], 1));
    EXPECT_TRUE(try_enter_name(c.view, key_of("one more"), at));
    EXPECT_EQ(c.name_slots[at].file_slot, 3u);
    EXPECT_EQ(c.name_slots[at].generation, 0u) << "the file of the old name is not the new one's";
    name_match found{};
    ASSERT_TRUE(find_name(c.view, key_of("one more"), found));
    EXPECT_EQ(name_state(found.word), name_busy);
    // The other slots of file 3, and then those of the rest.
    for (std::uint32_t i = 0; i < 4 * hand_cache::names; ++i) {
        const std::uint32_t taken = enter(c, ("new " + std::to_string(i)).c_str(), 0);
        EXPECT_NE(taken, at) << "its opener asks the host";
        ASSERT_TRUE(find_name(c.view, key_of(("new " + std::to_string(i)).c_str()), found)) << i;
        EXPECT_EQ(found.slot, taken);
        EXPECT_EQ(found.file_slot, 0u);
    }
    for (const std::uint32_t lock : c.name_locks) EXPECT_EQ(lock, 0u);
}

// The arena had no room for the path. The opener has its descriptor, and no search finds the slot.
TEST(name_table, a_slot_without_a_path_makes_room_though_its_file_is_open) {
    hand_cache c;
    c.add_file(0, 0, 1);
    for (std::uint32_t i = 0; i < 4 * hand_cache::names; ++i) {
        std::uint32_t at = 0;
        ASSERT_TRUE(try_enter_name(c.view, key_of("too long"), at)) << i;
        std::uint32_t other = 0;
        EXPECT_FALSE(try_enter_name(c.view, key_of("too long"), other)) << "its slot is busy";
        c.name_slots[at].file_slot = 0;
        c.name_slots[at].generation = 1;
        settle_name(&c.name_slots[at].word, i % 2 == 0 ? name_ready : name_failed);
        name_match found{};
        EXPECT_FALSE(find_name(c.view, key_of("too long"), found));
    }
    // A name that has its path keeps its slot.
    const std::uint32_t kept = enter(c, "short", 0);
    for (std::uint32_t i = 0; i < hand_cache::names; ++i) {
        std::uint32_t at = 0;
        ASSERT_TRUE(try_enter_name(c.view, key_of("too long"), at));
        EXPECT_NE(at, kept);
        c.name_slots[at].generation = 1;
        settle_name(&c.name_slots[at].word, name_ready);
    }
    EXPECT_EQ(check_invariants(c.view, {.references = 1}).rule, nullptr);
}

// Not an error: the openers that ask get their answers.
TEST(name_table, busy_slots_alone_are_waited_for) {
    hand_cache c;
    std::uint32_t at = 0;
    for (std::uint32_t i = 0; i < hand_cache::names; ++i)
        ASSERT_TRUE(try_enter_name(c.view, key_of(("busy " + std::to_string(i)).c_str()), at));
    const std::uint32_t last = at;
    EXPECT_FALSE(try_enter_name(c.view, key_of("one more"), at));
    settle_name(&c.name_slots[last].word, name_failed);
    ASSERT_TRUE(try_enter_name(c.view, key_of("one more"), at));
    EXPECT_EQ(at, last);
}

TEST(name_table, a_taken_lock_is_not_waited_for) {
    hand_cache c;
    for (std::uint32_t& lock : c.name_locks) lock = 1;
    std::uint32_t at = 0;
    EXPECT_FALSE(try_enter_name(c.view, key_of("x"), at));
    for (const std::uint32_t lock : c.name_locks)
        EXPECT_EQ(lock, 1u) << "the lock belongs to another thread";
    for (std::uint32_t& lock : c.name_locks) lock = 0;
    EXPECT_TRUE(try_enter_name(c.view, key_of("x"), at));
}

TEST(name_table, path_chunks_carry_every_byte) {
    const std::string name = "\xff\x80 0123456789\x01";
    const name_key key = key_of(name.c_str());
    std::string back(16, '\0');
    for (std::uint32_t i = 0; i < name.size(); i += 8) {
        const std::uint64_t chunk = path_chunk(key, i);
        std::memcpy(&back[i], &chunk, 8);
    }
    EXPECT_EQ(back.substr(0, name.size()), name);
    EXPECT_EQ(back.substr(name.size()), std::string(16 - name.size(), '\0'));
}

TEST(attach_file, fills_a_vacant_slot_and_joins_a_live_one) {
    hand_cache c;
    EXPECT_EQ(attach(c, answer_for(2, 1)), 0);
    EXPECT_EQ(c.file_words[2], make_file_word(file_live, 1, 1));
    EXPECT_EQ(c.file_records[2].page_count, 3u);
    EXPECT_EQ(attach(c, answer_for(2, 1)), 0);
    EXPECT_EQ(references_of(c.file_words[2]), 2u);
}

TEST(attach_file, clears_the_directory_of_a_two_level_table) {
    hand_cache c;
    for (std::uint32_t i = 0; i < hand_cache::words; ++i) c.page_words[i] = 99;
    open_answer answer = answer_for(2, 1);
    answer.two_level = true;
    answer.size_bytes = 9 * 512;  // nine pages, leaves of four: three entries
    EXPECT_EQ(attach(c, answer), 0);
    for (std::uint32_t i = 0; i < hand_cache::words; ++i)
        EXPECT_EQ(c.page_words[i], i >= 8 && i < 11 ? 0u : 99u) << i;
}

TEST(attach_file, an_answer_from_an_earlier_life_is_not_believed) {
    for (const file_word later :
         {make_file_word(file_vacant, 5, 0), make_file_word(file_vacant, 6, 0),
          make_file_word(file_live, 6, 1)}) {
        hand_cache c;
        c.file_words[2] = later;
        EXPECT_EQ(attach(c, answer_for(2, 5)), -EAGAIN) << file_generation(later);
        EXPECT_EQ(c.file_words[2], later);
    }
}

TEST(attach_file, waits_for_a_busy_slot_only_so_long) {
    hand_cache c;
    c.file_words[2] = make_file_word(file_busy, 1, 0);
    EXPECT_EQ(attach(c, answer_for(2, 2)), -ETIMEDOUT);
}

// The host had no room for the directory, or did not answer: the next group that needs it asks
// anew.
TEST(growth, that_failed_is_asked_for_once_more) {
    hand_cache c;
    c.view.request_wait_ns = c.view.host_wait_ns = 600'000'000'000;  // on a busy machine too
    c.view.growth_entries = 4;
    const file_handle f = c.add_file(2, 0, 1);
    const auto ask = [&](std::uint64_t ticket, std::int64_t result, std::uint64_t& directory) {
        std::thread host([&] {
            while (atomic_load<order::acquire, scope::system>(
                       &c.requests[ticket % hand_cache::ring_slots].published) != ticket + 1)
                std::this_thread::yield();
            EXPECT_EQ(leaf_request::of(c.requests[ticket % hand_cache::ring_slots]).kind,
                      growth_directory);
            c.replies[ticket % hand_cache::ring_slots].words[0] = 40;
            c.answer(ticket, result);
        });
        const std::int64_t code = make_growth(lane{}, c.view, f, directory);
        host.join();
        return code;
    };
    std::fill_n(&c.page_words[40], 4, 99);
    std::uint64_t directory = 0;
    EXPECT_EQ(ask(0, -EBADF, directory), -EBADF);
    ASSERT_EQ(growth_of(c.view, f.slot), growth_none) << "else no group asks again";
    EXPECT_EQ(ask(1, 0, directory), 0);
    EXPECT_EQ(directory, 40u);
    EXPECT_EQ(growth_of(c.view, f.slot), growth_first + 40);
    for (std::uint64_t i = 40; i < 44; ++i) EXPECT_EQ(c.page_words[i], 0u);
    directory = 0;
    EXPECT_EQ(make_growth(lane{}, c.view, f, directory), 0) << "it is there";
    EXPECT_EQ(directory, 40u);
}

}  // namespace penstock::engine::test
