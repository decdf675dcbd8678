// Rows of a table, copied by the batch, against what else happens to their pages.
#include "explore/rows_scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(rows, two_readers_take_no_frame) {
    rows_of_file s({.frames = 1});
    s.lane(s.row_reader(0));
    s.lane(s.row_reader(0));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page in a window was asked for");
        explore::require(s.counted(engine::count_misses) == 0, "a page entered the cache");
        explore::require(s.counted(engine::count_through_reads) == 2, "a row came another way");
    };
    expect_sound(s.run());
}

TEST(rows, page_is_evicted_and_enters_again) {
    rows_of_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.row_reader(0));
    s.lane(s.mapper(1));
    s.lane(s.mapper(0));
    expect_sound(s.run({.preemptions = 2}));
}

TEST(rows, window_is_closed_and_the_file_cut) {
    rows_of_file s({.frames = 1});
    s.lane(s.row_reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_sound(s.run());
}

TEST(rows, no_reader_goes_back_in_time) {
    rows_of_file s({.frames = 1});
    s.row_reader_while_the_page_enters();
    expect_sound(s.run({.preemptions = 3}));
}

// The size goes down before a page is touched, and is looked at after the copy.
TEST(rows, file_is_cut_by_the_same_runtime) {
    for (const std::uint64_t size : {page_bytes - 8, page_bytes, page_bytes + 8})
        for (const bool is_warm : {false, true}) {
            rows_of_file s({.frames = 1, .writes = true});
            s.row_reader_while_the_file_is_cut(size, is_warm);
            expect_sound(s.run());
        }
}

// Pages that are read through enter at the end of the call, the same page for two readers.
TEST(rows, pages_enter_at_the_end_of_a_call) {
    rows_of_file s({.frames = 1});
    s.w.view.admit_one_in = 1;
    s.lane(s.row_reader(0));
    s.lane(s.row_reader(0));
    s.check = [&] {
        explore::require(s.counted(engine::count_misses) == 1, "the page entered once");
    };
    expect_sound(s.run({.preemptions = 2}));
}

// A list of rows of which the host has to read the pages: they are asked for together, each once.
TEST(rows, missing_rows_are_loaded_together) {
    rows_of_file s({.frames = 2});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.memory.windows[0] = 0;
    };
    for (int reader = 0; reader < 2; ++reader)
        s.lane([&](explore_lane g) {
            const row_table own(s.w.view, s.fd, page_bytes, page_bytes / 2, 0, 4);
            const std::int32_t numbers[] = {3, 0, 1, 3};
            std::uint64_t got[4][words_per_page / 2] = {};
            explore::require(gather(g, s.w.fs(), own.ref, numbers, 4, got) == 0,
                             "a row could not be had");
            for (std::uint64_t k = 0; k < 4; ++k)
                for (std::uint64_t i = 0; i < words_per_page / 2; ++i) {
                    const std::uint64_t word =
                        static_cast<std::uint64_t>(numbers[k]) * (words_per_page / 2) + i;
                    explore::require(
                        got[k][i] == content(1, word / words_per_page, word % words_per_page),
                        "a row has wrong bytes");
                }
        });
    s.check = [&] { explore::require(s.server.asked.reads == 2, "each page was asked for once"); };
    expect_sound(s.run({.preemptions = 2}));
}

}  // namespace
}  // namespace penstock::explore_kit
