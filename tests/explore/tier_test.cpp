// The host tier: pages that the cache drops, pages that the host reads ahead, and what happens to
// either when frames are scarce.
#include "explore/tier_scenario.hpp"
#include "penstock/advise.hpp"

namespace penstock::explore_kit {
namespace {

explore::limits bounded(int preemptions) {
    explore::limits bounds;
    bounds.preemptions = preemptions;
    return bounds;
}

// `page` is in the tier.
void keep(one_file& s, std::uint64_t page, std::uint32_t frame, bool used) {
    s.prepare = [&s, before = s.prepare, page, frame, used] {
        before();
        s.w.keep_now(0, page, frame, content(1, page, 0), used);
    };
}

auto wanter(one_file& s, std::uint64_t page) {
    return [&s, page](auto g) {
        advise(g, s.w.fs(), s.fd, advice::will_need, static_cast<std::int64_t>(page * page_bytes),
               page_bytes);
    };
}

// Runs the scenario, and fails if in none of its schedules a page was filled: then it would be
// about something else.
void expect_sound_with_fills(one_file& s, int preemptions) {
    std::uint32_t fills = 0;
    s.check = [&] { fills += s.server.asked.fills; };
    expect_sound(s.run(bounded(preemptions)));
    EXPECT_GT(fills, 0u) << "this scenario is about fills";
}

TEST(tier, two_readers_of_a_kept_page) {
    one_file s({.frames = 2, .tier_frames = 1});
    keep(s, 0, 0, true);
    for (int i = 0; i < 2; ++i) s.lane(s.reader(0));
    s.check = [&] {
        explore::require(s.server.asked.reads == 0, "a page of the tier was asked of the host");
    };
    expect_sound(s.run());
}

// The page that leaves the cache goes to the tier while a reader wants it back.
TEST(tier, dropped_and_wanted_back) {
    one_file s({.frames = 1, .tier_frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(1));
    s.lane(s.reader(0));
    expect_sound(s.run(bounded(3)));
}

// The tier has one frame, and it holds a page that a reader is copying while the cache drops
// another into it.
TEST(tier, kept_page_against_the_next_one_dropped) {
    one_file s({.frames = 2, .tier_frames = 1}, 4 * page_bytes);
    s.warm(0, 0, false);
    s.warm(1, 1, false);
    keep(s, 2, 0, false);
    s.lane(s.reader(2));
    s.lane(s.reader(3));
    expect_sound(s.run(bounded(2)));
}

TEST(tier, a_fill_against_a_reader) {
    one_file s({.frames = 2, .tier_frames = 1});
    s.lane(wanter(s, 0));
    s.lane(s.reader(0));
    expect_sound_with_fills(s, 3);
}

TEST(tier, two_readers_come_for_one_fill) {
    one_file s({.frames = 2, .tier_frames = 1});
    s.lane([&](auto g) {
        wanter(s, 0)(g);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    s.lane(s.reader(0));
    expect_sound_with_fills(s, 2);
}

// The host cannot read ahead; the reader asks for itself, and the page that failed is gone.
TEST(tier, a_fill_that_fails) {
    one_file s({.frames = 2, .tier_frames = 1});
    s.server.decide = [](const engine::ring_request& request) {
        plan planned;
        if (request.operation == engine::op::fill) planned.error = -EIO;
        return planned;
    };
    s.lane(wanter(s, 0));
    s.lane(s.reader(0));
    expect_sound_with_fills(s, 3);
}

// A lane keeps the only ring slot for ever. Meanwhile another gets no slot for the page whose frame
// it has taken, or for a fill: what it claimed in the tier becomes absent again.
TEST(tier, no_ring_slot_for_a_page_or_a_fill) {
    for (const bool fills : {false, true}) {
        one_file s({.frames = 1, .ring_slots = 1, .tier_frames = 1});
        s.warm(0, 0, false);
        s.server.decide = [](const engine::ring_request& request) {
            return plan{.when = request.operation == engine::op::ping ? timing::never
                                                                      : timing::at_once};
        };
        s.lane([&s](auto g) { static_cast<void>(echo(g, s.w.view, 7)); });
        s.lane([&s, fills](auto g) {
            if (fills) return wanter(s, 1)(g);
            std::uint64_t got = 0;
            const auto done = read(g, s.w.fs(), s.fd, &got, 8, page_bytes);
            explore::require(done == -EAGAIN || (done == 8 && got == content(1, 1, 0)),
                             "wrong bytes");
        });
        expect_sound(s.run(bounded(3)));
    }
}

// A reader gives up on a fill that does not end; the fill's own pin stays.
TEST(tier, a_fill_that_never_ends) {
    one_file s({.frames = 2, .tier_frames = 1});
    s.server.decide = [](const engine::ring_request& request) {
        return plan{.when =
                        request.operation == engine::op::fill ? timing::never : timing::at_once};
    };
    const auto reads = [&](auto g) {
        std::uint64_t got = 0;
        const auto done = read(g, s.w.fs(), s.fd, &got, 8, 0);
        explore::require(done == -ETIMEDOUT || (done == 8 && got == content(1, 0, 0)),
                         "wrong bytes");
    };
    s.lane([&](auto g) {
        wanter(s, 0)(g);
        reads(g);
    });
    s.lane(reads);
    expect_sound(s.run(bounded(2)));
}

// No reader comes for a fill. Its frame serves the next one all the same, once the host is done
// with it.
TEST(tier, a_fill_without_a_reader) {
    one_file s({.frames = 1, .tier_frames = 1});
    s.lane(wanter(s, 0));
    s.lane([&](auto g) {
        wanter(s, 1)(g);
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
    });
    expect_sound_with_fills(s, 2);
}

// The file is closed and taken down while one of its pages is on its way to the tier, or comes from
// the host.
TEST(tier, taken_down_with_pages_on_their_way) {
    for (const bool fills : {false, true}) {
        one_file s({.frames = 1, .files = 1, .tier_frames = 1});
        s.prepare = [&s, fills] {
            s.server.given_already(0, 1);
            s.fd = s.w.open_now(0, 2 * page_bytes, 0);
            if (!fills) s.w.load_now(0, 0, 0, content(1, 0, 0), false);
        };
        s.held.references = 0;
        s.lane([&s, fills](auto g) {
            if (fills) wanter(s, 1)(g);
            else read_and_compare(g, s.w.fs(), s.fd, 1, 1);
            explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
        });
        s.lane([&s](auto g) { engine::retire_one(g, s.w.view); });
        s.check = [&s] {
            if (engine::file_state(s.w.memory.file_words[0]) == engine::file_live) return;
            for (const engine::page_word word : s.w.memory.tier_words)
                explore::require(engine::is_absent(word) && engine::pins_of(word) == 0,
                                 "a table was given back with pages in the tier");
        };
        expect_sound(s.run(bounded(3)));
    }
}

// A lane has looked at the page of a fill that ended, and is about to pin it, when another lane
// takes its frame. The word names no frame then, and a fill of frame 0 is another page's.
TEST(tier, a_fill_that_ended_leaves_before_it_is_settled) {
    one_file s({.frames = 1, .ring_slots = 4, .tier_frames = 2}, 4 * page_bytes);
    keep(s, 1, 1, false);
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.tier_words[1] += engine::pin_one;
        s.w.memory.fill_marks[1] = s.w.memory.done_marks[1] = engine::make_stamp(0, 7);
    };
    s.lane([&](auto g) {
        wanter(s, 0)(g);
        wanter(s, 2)(g);
    });
    s.lane(wanter(s, 3));
    s.check = [&] {
        for (const engine::page_word word : s.w.memory.tier_words) {
            const bool is_on_its_way =
                engine::is_valid(word) &&
                s.w.memory.fill_marks[engine::frame_of(word)] > engine::fill_failed;
            explore::require(engine::pins_of(word) == (is_on_its_way ? 1 : 0),
                             "a page of the tier has other pins than its fill's");
        }
    };
    expect_sound(s.run(bounded(2)));
}

TEST(tier, dropped_while_its_file_is_taken_down) {
    dropped_while_taken_down s;
    expect_sound(s.run_bounded());
    EXPECT_GT(s.kept, 0u);
    EXPECT_GT(s.taken_down, 0u);
}

}  // namespace
}  // namespace penstock::explore_kit
