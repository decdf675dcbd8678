// Reading through a window: pages that do not enter the cache, against what else happens to them.
#include "explore/window_scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(through, two_readers_take_no_frame) {
    read_through_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page in a window was asked for");
        explore::require(s.counted(engine::count_misses) == 0, "a page entered the cache");
        explore::require(s.counted(engine::count_through_reads) == 2, "a read went another way");
    };
    expect_sound(s.run());
}

TEST(through, pinning_readers_take_no_frame) {
    read_through_file s({.frames = 1});
    for (int i = 0; i < 2; ++i) s.lane<pinning_lane>(s.reader(0));
    s.check = [&] {
        explore::require(s.counted(engine::count_through_reads) == 2, "a read went another way");
    };
    expect_sound(s.run());
}

// One copy for both pages, of which another lane brings one in.
TEST(through, two_pages_of_one_call_while_a_page_enters) {
    read_through_file s({.frames = 1});
    s.lane([&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "wrong bytes");
    });
    s.lane(s.mapper(1));
    expect_sound(s.run());
}

TEST(through, page_is_evicted_and_enters_again) {
    read_through_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane(s.mapper(1));
    s.lane(s.mapper(0));
    expect_sound(s.run({.preemptions = 2}));
}

// The reader asks the host, which knows what the file holds.
TEST(through, window_is_closed_and_the_file_cut) {
    read_through_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_sound(s.run());
}

TEST(through, no_reader_goes_back_in_time) {
    read_through_file s({.frames = 1});
    s.reader_while_the_page_enters();
    expect_sound(s.run({.preemptions = 3}));
}

TEST(through, no_reader_of_two_pages_goes_back_in_time) {
    read_through_file s({.frames = 1});
    s.reader_of_two_while_the_second_enters();
    expect_sound(s.run({.preemptions = 2}));
}

TEST(through, word_of_another_life_of_the_slot) {
    read_through_file s({.frames = 1});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.window_now(0, 2,
                       [](std::uint64_t page, std::uint64_t i) { return content(2, page, i); });
    };
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

// A file that a kernel has open for writing: its newest bytes may be on their way to the file.
TEST(through, file_with_a_writer_is_loaded) {
    read_through_file s({.frames = 1, .writes = true});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.memory.writes[0].granted = 1;
        s.w.memory.writes[0].stored_bytes = 2 * page_bytes;
        s.w.window_now(0, 1, [](std::uint64_t, std::uint64_t) { return std::uint64_t{0}; });
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            s.w.memory.disk[i] = content(1, i / words_per_page, i % words_per_page);
    };
    s.lane(s.reader(0));
    s.check = [&] {
        explore::require(s.counted(engine::count_through_reads) == 0,
                         "a file with a writer was read through");
    };
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
