// Names and files: one host call while a name is open, one error for all waiters, aliases, and
// slots that run short.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(open, one_name_that_stays_open_costs_one_host_call) {
    names s({.frames = 1});
    s.held.references = 2;
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) { explore::require(open(g, s.w.fs(), "a") >= 0, "an open failed"); });
    s.also([&] { explore::require(s.server.asked.opens == 1, "the host was asked twice"); });
    expect_sound(s.run());
}

TEST(open, open_and_close_against_the_same) {
    names s({.frames = 1});
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) { explore::require(s.open_and_close(g, "a") == 0, "an open failed"); });
    s.also([&] { explore::require(s.server.asked.opens <= 2, "the host was asked too often"); });
    expect_sound(s.run());
}

TEST(open, close_of_one_leaves_the_file_to_the_other) {
    names s({.frames = 1});
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) { explore::require(s.use(g, "a", 1) == 0, "an open failed"); });
    s.also([&] { explore::require(s.server.asked.reads == 1, "an unchanged file lost its page"); });
    expect_sound(s.run());
}

TEST(open, two_names_of_one_file_share_its_slot) {
    names s({.frames = 1});
    s.held.references = 2;
    int fd[2] = {};
    s.lane([&](auto g) { fd[0] = open(g, s.w.fs(), "a"); });
    s.lane([&](auto g) { fd[1] = open(g, s.w.fs(), "alias"); });
    s.also([&] { explore::require(fd[0] >= 0 && fd[0] == fd[1], "two descriptors of one file"); });
    expect_sound(s.run());
}

// A file is open by another name: by its old one it is not found as long as that was not asked for
// anew.
TEST(open, a_name_that_was_moved_after_the_last_close_leads_to_its_new_file) {
    moved_name s;
    s.open_both();
    expect_sound(s.run({.preemptions = 2}));
}

TEST(open, all_waiting_openers_get_the_same_error) {
    names s({.frames = 1});
    int result[2] = {};
    for (int i = 0; i < 2; ++i)
        s.lane([&s, &result, i](auto g) { result[i] = open(g, s.w.fs(), "none"); });
    s.also([&] { explore::require(result[0] == -ENOENT && result[1] == -ENOENT, "wrong error"); });
    expect_sound(s.run());
}

TEST(open, second_try_after_an_error_asks_again) {
    names s({.frames = 1});
    std::uint32_t asked = 0;
    s.prepare = [&] { asked = 0; };
    s.server.decide = [&](const auto&) { return plan{.error = asked++ == 0 ? -EACCES : 0}; };
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) {
            int result = s.open_and_close(g, "a");
            explore::require(result == 0 || result == -EACCES, "wrong error");
            if (result != 0) result = s.open_and_close(g, "a");
            explore::require(result == 0, "the error stuck");
        });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(open, two_new_names_take_two_slots) {
    names s({.frames = 1, .files = 2, .names = 2});
    s.held.references = 2;
    int fd[2] = {};
    s.lane([&](auto g) { fd[0] = open(g, s.w.fs(), "a"); });
    s.lane([&](auto g) { fd[1] = open(g, s.w.fs(), "b"); });
    s.also([&] {
        explore::require(fd[0] >= 0 && fd[1] >= 0 && fd[0] != fd[1], "two names, one descriptor");
    });
    expect_sound(s.run());
}

// One slot for two names: the lane that comes second waits until the first has its answer, and
// takes the slot then.
TEST(open, two_names_race_for_one_slot) {
    names s({.frames = 1, .files = 2, .names = 1});
    s.w.view.request_wait_ns = 8500;  // a lane that waits for the slot lets time pass
    for (const char* name : {"a", "b"})
        s.lane([&s, name](auto g) {
            explore::require(s.open_and_close(g, name) == 0, "an open failed");
        });
    expect_sound(s.run({.preemptions = 2}));
}

// A file is open by the only name that there is room for. One lane opens another file, by another
// name; the other opens the first one again, and closes it. Each gets its own file.
TEST(open, a_new_name_takes_the_slot_of_a_file_that_is_open) {
    names s({.frames = 1, .files = 2, .names = 1});
    s.w.view.request_wait_ns = 8500;
    s.held.references = 2;
    s.prepare = [&s] {
        s.server.given_already(0, 1);
        s.w.open_now(0, 2 * page_bytes, 0);
        s.name_now(0, "a", 0);
    };
    int fd[2] = {};
    s.lane([&](auto g) { fd[0] = open(g, s.w.fs(), "b"); });
    s.lane([&](auto g) {
        fd[1] = open(g, s.w.fs(), "a");
        explore::require(fd[1] >= 0, "an open failed");
        explore::require(close(g, s.w.fs(), fd[1]) == 0, "a close failed");
    });
    s.also([&] {
        explore::require(engine::descriptor_slot(s.w.view, fd[0]) == 1 &&
                             engine::descriptor_slot(s.w.view, fd[1]) == 0,
                         "a name led to another file");
        explore::require(s.server.asked.opens <= 2, "the host was asked too often");
    });
    expect_sound(s.run());
}

// The last question is never put, because the ring's only slot waits for an answer: the name keeps
// its place in the path arena, which would be lost otherwise.
TEST(open, no_slot_to_ask_with) {
    names s({.frames = 1, .ring_slots = 1});
    std::uint32_t asked = 0;
    s.prepare = [&] { asked = 0; };
    s.server.decide = [&](const auto&) {
        return plan{.when = asked++ == 1 ? timing::never : timing::at_once};
    };
    s.lane([&](auto g) {
        explore::require(s.open_and_close(g, "a") == 0, "an open failed");
        explore::require(open(g, s.w.fs(), "b") == -ETIMEDOUT, "wrong error");
        explore::require(open(g, s.w.fs(), "a") == -EAGAIN, "wrong error");
    });
    expect_sound(s.run());
}

TEST(open, no_answer_to_an_open) {
    names s({.frames = 1, .ring_slots = 1});
    s.server.decide = [&](const auto&) { return plan{.when = timing::never}; };
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) {
            const int result = open(g, s.w.fs(), "a");
            explore::require(result == -ETIMEDOUT || result == -EAGAIN, "wrong error");
        });
    expect_sound(s.run());
}

// One opens, closes and closes again while another does the same with its own: each second close
// finds nothing to take.
TEST(open, a_descriptor_with_a_number_is_closed_once) {
    names s({.frames = 1});
    s.prepare = [&s, before = s.prepare] {
        if (before) before();
        s.server.given_already(0, 1);
        s.w.open_now(0, page_bytes, 0);
        s.w.memory.file_words[0] |= engine::number_bit(2);
    };
    engine::file_word* const word = &s.w.memory.file_words[0];
    s.lane([word](auto) {
        if (!engine::try_reference(word, 1)) return;  // the other has closed the file
        const std::uint32_t number = engine::take_number(word);
        explore::require(number == 1, "the lowest number was free");
        explore::require(engine::release_number(word, 1, number), "a close failed");
        explore::require(!engine::release_number(word, 1, number),
                         "a second close took a reference");
    });
    s.lane([word](auto) {
        explore::require(engine::release_number(word, 1, 2), "a close failed");
        explore::require(!engine::release_number(word, 1, 2), "a second close took a reference");
    });
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
