// A cut against a lane that writes behind it, under every schedule.
#include "explore/cut_scenario.hpp"
#include "rounds.hpp"

namespace penstock::explore_kit {
namespace {

TEST(cut, a_write_of_a_page_that_is_there_comes_before_or_after) {
    cut_file s;
    s.warm(0, 0);
    s.warm(1, 1);
    s.lane(s.cutter());
    s.lane([&](auto g) { s.write_word(g); });
    expect_sound(s.run({.preemptions = 3}));
}

TEST(cut, a_write_of_a_page_that_is_not_there_comes_before_or_after) {
    cut_file s;
    s.lane(s.cutter());
    s.lane([&](auto g) { s.write_word(g); });
    expect_sound(s.run({.preemptions = 3}));
}

TEST(cut, two_cuts_and_a_write) {
    cut_file s;
    s.warm(1, 1);
    s.lane(s.cutter());
    s.lane(s.cutter());
    s.lane([&](auto g) { s.write_word(g); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(cut, a_reader_beside_it_gets_old_bytes_or_none) {
    cut_file s;
    s.lane(s.cutter());
    s.lane([&](auto g) {
        std::uint64_t got = 0;
        const auto done = read(g, s.w.fs(), s.fd, &got, 8, page_bytes);
        explore::require(done == 0 || (done == 8 && (got == 0 || got == content(1, 1, 0))),
                         "a reader got bytes that the file never had");
    });
    expect_sound(s.run({.preemptions = 3}));
}

TEST(cut, a_page_that_is_held_by_a_pointer) {
    held_cut_file s;
    expect_sound(s.run({.preemptions = 2}));
}

TEST(cut, a_page_that_a_pointer_holds_while_it_is_synchronised) {
    synced_cut_file s;
    s.lane([sync = s.flusher(), unmap = s.unmapper()](auto g) {
        sync(g);
        unmap(g);
    });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(cut, a_page_that_one_synchronises_while_another_gives_it_back) {
    synced_cut_file s;
    s.lane(s.flusher());
    s.lane(s.unmapper());
    expect_sound(s.run({.preemptions = 1}));
}

TEST(cut, one_that_comes_late_takes_no_later_write) {
    late_cut_file s;
    expect_sound(s.run({.preemptions = 3}));
}

TEST(cut, two_lanes_take_one_up) {
    left_cut_file s;
    expect_sound(s.run({.preemptions = 2}));
}

TEST(cut, one_that_comes_late_while_another_lane_cuts) {
    twice_cut_file s;
    expect_sound(s.run({.preemptions = 2}));
}

// The page is clean, and stays: it has a byte that is left.
TEST(cut, within_a_clean_page) {
    cut_file s;
    s.warm(0, 0);
    s.lane([&](auto g) { explore::require(truncate(g, s.w.fs(), s.fd, 8) == 0, "a cut failed"); });
    s.lane([&](auto g) {
        std::uint64_t got = 0;
        const auto done = read(g, s.w.fs(), s.fd, &got, 8, 0);
        explore::require(done == 8 && got == content(1, 0, 0), "a byte before the cut is gone");
    });
    s.check = [&] {
        explore::require(s.w.memory.file_records[0].size_bytes == 8 && s.server.written_bytes == 8,
                         "the file was not cut");
        explore::require(s.word_now(1) == 0, "a byte behind the cut came back");
    };
    expect_sound(s.run({.preemptions = 3}));
}

// What another lane writes between the two flushes of a cut cannot be brought to the file.
TEST(cut, one_that_cannot_flush_opens_the_gate) {
    cut_file s;
    s.warm(1, 1);
    s.server.decide = [](const engine::ring_request& request) {
        return plan{.error = request.operation == engine::op::write ? -EIO : 0};
    };
    s.lane([&](auto g) {
        const int code = truncate(g, s.w.fs(), s.fd, page_bytes);
        explore::require(code == 0 || code == -EIO, "wrong error");
    });
    s.lane([&](auto g) { s.write_word(g); });
    s.check = [&] {
        explore::require(
            s.is_written && s.w.memory.writes[0].gate == 0 && s.w.memory.writes[0].cut_lock == 0,
            "the gate stayed closed");
    };
    expect_sound(s.run({.preemptions = 2}));
}

TEST(cut, one_that_the_host_refuses_leaves_all_as_it_was) {
    cut_file s;
    s.warm(1, 1);
    s.server.decide = [&](const engine::ring_request& request) {
        return plan{.error = request.operation == engine::op::truncate ? -EIO : 0};
    };
    s.lane([&](auto g) {
        explore::require(truncate(g, s.w.fs(), s.fd, page_bytes) == -EIO, "an error was not told");
    });
    s.lane([&](auto g) { s.write_word(g); });
    s.check = [&] {
        explore::require(s.is_written && s.word_now(cut_file::word) == cut_file::value,
                         "a written word was lost");
        explore::require(s.w.memory.file_records[0].size_bytes == 2 * page_bytes &&
                             s.server.written_bytes == 2 * page_bytes,
                         "a refused cut changed the size");
        explore::require(s.w.memory.writes[0].gate == 0, "the gate stayed closed");
    };
    expect_sound(s.run({.preemptions = 3}));
}

}  // namespace
}  // namespace penstock::explore_kit
