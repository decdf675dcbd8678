// Pages that come through a window: loaded once, without a request, and evicted and checked like
// any other.
#include "explore/window_scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(window, two_readers_miss_together) {
    one_file s({.frames = 2});
    s.in_window();
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.counters = {};
    };
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page in a window was asked for");
        const std::uint64_t* const count = s.w.counters.count;
        explore::require(count[engine::count_misses] == 1 && count[engine::count_window_loads] == 1,
                         "a page was loaded twice");
    };
    expect_sound(s.run());
}

// Each load through the window takes the frame of the other page.
TEST(window, loads_of_two_pages_share_one_frame) {
    one_file s({.frames = 1});
    s.in_window();
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

TEST(window, copy_without_a_pin_against_a_load_that_evicts) {
    for (const bool used : {false, true}) {
        one_file s({.frames = 1});
        s.in_window();
        s.warm(0, 0, used);
        s.lane(s.reader(0));
        s.lane(s.reader(1));
        expect_sound(s.run());
    }
}

TEST(window, mapping_against_a_load_that_evicts) {
    one_file s({.frames = 1});
    s.in_window();
    s.lane(s.mapper(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

// One call reads both pages, so that two loads without a request are under way when the other wants
// a frame.
TEST(window, two_pages_of_one_call_against_a_reader) {
    one_file s({.frames = 2});
    s.in_window();
    s.lane([&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "wrong bytes");
    });
    s.lane(s.reader(1));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page in a window was asked for");
    };
    expect_sound(s.run());
}

// A file with a window and one without take the frame from each other.
TEST(window, load_through_a_window_against_a_load_by_request) {
    one_file s({.frames = 1, .files = 2});
    s.in_window();
    int other = -1;
    s.held.references = 2;
    s.prepare = [&, before = s.prepare] {
        before();
        s.server.given_already(1, 2);
        other = s.w.open_now(1, 2 * page_bytes, 8);
    };
    s.lane(s.reader(0));
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), other, 2, 0); });
    s.check = [&] {
        explore::require(s.server.asked.reads >= 1, "a page without a window was not asked for");
    };
    expect_sound(s.run());
}

// The host fills in the chunk word first: a reader that sees the window word finds the chunk word.
TEST(window, opened_while_lanes_read) {
    one_file s({.frames = 1});
    s.in_window();
    engine::window_word word = 0;
    std::uint64_t chunk = 0;
    s.prepare = [&, before = s.prepare] {
        before();
        word = std::exchange(s.w.memory.windows[0], 0);
        chunk = std::exchange(s.w.memory.window_chunks[1], 0);
    };
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    s.lane([&](auto) {
        atomic_store<order::relaxed>(&s.w.memory.window_chunks[1], chunk);
        atomic_store<order::release>(&s.w.memory.windows[0], word);
    });
    expect_sound(s.run({.preemptions = 2}));
}

// A load that took bytes from the old window does not take the new one for it, nor does it follow a
// word that is gone.
TEST(window, closed_and_opened_again_while_a_page_is_loaded) {
    replaced_window s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.replace(g); });
    expect_sound(s.run());
}

TEST(window, closed_and_opened_again_while_two_pages_are_loaded) {
    replaced_window s({.frames = 2});
    s.lane([&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "wrong bytes");
    });
    s.lane([&](auto g) { s.replace(g); });
    expect_sound(s.run());
}

// The word was left by an earlier life of the slot, whose window shows another file.
TEST(window, word_of_another_life_of_the_slot) {
    one_file s({.frames = 1});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.window_now(0, 2,
                       [](std::uint64_t page, std::uint64_t i) { return content(2, page, i); });
    };
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    s.check = [&] { explore::require(s.server.asked.reads >= 2, "a page came from elsewhere"); };
    expect_sound(s.run());
}

// A closed file with a window keeps its slot. A lane that needs a slot goes without one. A lane
// that opens that file again finds it.
TEST(window, closed_file_with_a_window_is_not_taken_down) {
    names s({.frames = 1, .files = 1});
    s.prepare = [&] {
        s.server.given_already(0, 1, 1);
        s.w.closed_now(0, 2 * page_bytes, 0, 1);
        s.w.window_now(0, 1,
                       [](std::uint64_t page, std::uint64_t i) { return content(1, page, i); });
    };
    s.lane([&](auto g) {
        explore::require(s.use(g, "a", 1) == 0, "the file with the window could not be opened");
    });
    s.lane([&](auto g) {
        explore::require(s.open_and_close(g, "c") == -ENFILE,
                         "a file with a window was taken down");
    });
    s.also([&] {
        explore::require(s.server.asked.reads == 0 && s.server.asked.retires == 0,
                         "the window was not used");
    });
    expect_sound(s.run({.preemptions = 2}));
}

}  // namespace
}  // namespace penstock::explore_kit
