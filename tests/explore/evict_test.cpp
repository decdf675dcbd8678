// More pages than frames: a copy that passed the check has the right bytes, and a pinned page keeps
// its frame.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

TEST(evict, readers_of_two_pages_share_one_frame) {
    one_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

// The page that the first lane copies without a pin is evicted by the second, whose page then takes
// the frame.
TEST(evict, copy_without_a_pin_against_eviction) {
    for (const bool used : {false, true}) {
        one_file s({.frames = 1});
        s.warm(0, 0, used);
        s.lane(s.reader(0));
        s.lane(s.reader(1));
        expect_sound(s.run());
    }
}

// The frame comes back to the first page between the two looks at its word: the generation tells.
TEST(evict, copy_against_eviction_and_return) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    expect_sound(s.run());
}

TEST(evict, copy_with_a_pin_against_eviction) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane<pinning_lane>(s.reader(0));
    s.lane<pinning_lane>(s.reader(1));
    expect_sound(s.run());
}

TEST(evict, mapping_against_eviction) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.mapper(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

TEST(evict, two_mappings_take_turns_with_one_frame) {
    one_file s({.frames = 1});
    s.lane(s.mapper(0));
    s.lane(s.mapper(1));
    expect_sound(s.run());
}

// A reader posts its request before it has a frame, and the other may have the frame before it has
// a slot. None waits for what the other holds.
TEST(evict, readers_of_two_pages_share_one_frame_and_one_slot) {
    one_file s({.frames = 1, .ring_slots = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_sound(s.run());
}

TEST(evict, every_frame_pinned_is_an_error_and_not_a_hang) {
    one_file s({.frames = 1});
    s.held.mappings = 1;
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.load_now(0, 0, 0, content(1, 0, 0), true);
        s.w.memory.words[0] += engine::pin_one;
    };
    const auto body = [&](auto g) {
        std::uint64_t got[words_per_page] = {};
        const auto done = read(g, s.w.fs(), s.fd, got, page_bytes, page_bytes);
        // The one finds no frame; the other waits for the page that the one loads.
        explore::require(done == -ENOBUFS || done == -ETIMEDOUT, "a pinned page was evicted");
    };
    s.lane(body);
    s.lane(body);
    expect_sound(s.run());
}

TEST(evict, three_readers_of_two_pages_share_one_frame) {
    one_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    s.lane(s.reader(0));
    expect_sound(s.run({.preemptions = 1}));
}

TEST(evict, readers_of_three_pages_share_two_frames) {
    one_file s({.frames = 2}, 3 * page_bytes);
    s.warm(0, 0, true);
    s.warm(1, 1, false);
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
    });
    s.lane(s.reader(2));
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
