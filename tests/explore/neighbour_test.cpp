// Linked caches: what a reader takes from another cache, against what happens to it there.
#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(neighbour, a_page_next_door_is_not_asked_for) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane<pinning_lane>(s.reader(0));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page next door was asked for");
        explore::require(s.counted(engine::count_neighbour_reads) == 2, "a read went another way");
        explore::require(s.w.memory.neighbour.words[0] == engine::state_valid,
                         "a reader wrote to its neighbour");
    };
    expect_sound(s.run());
}

TEST(neighbour, a_mapped_page_is_copied_from_next_door) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane(s.mapper(0));
    s.also([&] {
        explore::require(s.server.asked.reads == 0, "a page next door was asked for");
        explore::require(s.counted(engine::count_neighbour_loads) == 1, "a load went another way");
    });
    expect_sound(s.run());
}

TEST(neighbour, read_against_eviction) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane(s.far_reader(1));
    expect_sound(s.run());
}

TEST(neighbour, read_against_eviction_and_return) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.evict_and_reload(g); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, load_against_eviction_and_return) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane([&](auto g) { s.evict_and_reload(g); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, table_is_given_to_another_file) {
    for (const bool maps : {false, true}) {
        closed_next_door s({.frames = 1});
        if (maps) s.lane(s.mapper(0));
        else s.lane(s.reader(0));
        s.lane([&](auto g) { s.give_table_away(g); });
        expect_sound(s.run({.preemptions = 3}));
    }
}

// What a kernel next door stored and did not bring to the file is never seen here.
TEST(neighbour, file_is_opened_for_writing) {
    for (const bool maps : {false, true}) {
        linked_file s({.frames = 1});
        s.warm_far(0, 0);
        if (maps) s.lane(s.mapper(0));
        else s.lane(s.reader(0));
        s.lane([&](auto g) { s.open_and_store(g); });
        expect_sound(s.run({.preemptions = 3}));
    }
}

// A reader may find the life of the new entry and the table of the last.
TEST(neighbour, entry_is_half_written) {
    linked_file s({.frames = 1}, 2);
    s.warm_far(0, 0);
    s.begin_with_another_entry();
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.enter(g); });
    expect_sound(s.run());
}

// Either asks the host or takes the page from the other; nothing goes in a circle.
TEST(neighbour, both_miss_together) {
    linked_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane(s.far_reader(0));
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, both_copy_from_each_other) {
    linked_file s({.frames = 1});
    s.warm(1, 0, false);
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane([&](auto g) { map_and_compare(g, s.far_fs(), s.far_fd, 1, 1); });
    expect_sound(s.run({.preemptions = 2}));
}

// The page's frame is evicted under a reader of the copy; the neighbour's page counts for nothing
// then.
TEST(neighbour, copied_page_is_evicted_again) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane(s.mapper(1));
    s.lane(s.reader(0));
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, leaves_under_a_reader) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_sound(s.run());
}

TEST(neighbour, leaves_under_a_load) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.mapper(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_sound(s.run({.preemptions = 3}));
}

TEST(neighbour, rows_are_read_against_eviction) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.row_reader());
    s.lane([&](auto g) { s.evict_and_reload(g); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, leaves_under_rows) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.row_reader());
    s.lane([&](auto g) { s.leave(g); });
    expect_sound(s.run({.preemptions = 2}));
}

// Both find the page next door, and one claims it first.
TEST(neighbour, two_loads_of_one_page_are_counted_no_more) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.mapper(0));
    s.lane(s.mapper(0));
    expect_sound(s.run({.preemptions = 3}));
}

TEST(neighbour, a_load_without_a_frame_is_counted_no_more) {
    leaving_neighbour s({.frames = 1});
    s.warm(1, 0, true);
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.words[1] += engine::pin_one;
    };
    s.held.mappings = 1;
    s.lane([&](auto g) {
        explore::require(map(g, s.w.fs(), s.fd, 0, page_bytes).bytes == -ENOBUFS,
                         "there was a frame");
    });
    expect_sound(s.run());
}

// The host opens the file for writing, or it is cut, after the load found the page next door: then
// the load asks the host, or for nothing, and is not counted any more.
TEST(neighbour, a_load_that_another_writer_overtakes_is_counted_no_more) {
    for (const bool cuts : {false, true}) {
        leaving_neighbour s({.frames = 1, .writes = true});
        s.far.writes = nullptr;
        s.prepare = [&s, before = s.prepare] {
            before();
            s.w.memory.writes[0].stored_bytes = 2 * page_bytes;
            for (std::uint64_t i = 0; i < words_per_page; ++i)
                s.w.memory.disk[i] = content(1, 0, i);
        };
        s.lane([&s, cuts](auto g) {
            const mapping m = map(g, s.w.fs(), s.fd, 0, page_bytes);
            explore::require(m.bytes == page_bytes || cuts, "a map failed");
            if (m.bytes > 0) explore::require(unmap(g, s.w.fs(), m) == 0, "an unmap failed");
        });
        s.lane([&s, cuts](auto) {
            engine::grant(s.w.view, 0);
            if (cuts) engine::cut_to(s.w.view, 0, 0);
        });
        expect_sound(s.run({.preemptions = 2}));
    }
}

// One reader is counted in the round before, the other in the next.
TEST(neighbour, leaves_under_readers_of_two_rounds) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(neighbour, stays_loading_for_ever) {
    stuck_neighbour s({.frames = 1});
    s.lane<hasty_lane>(s.reader(0));
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
