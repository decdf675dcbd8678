// Fewer file slots than files: a closed file is taken down while others open, read and map.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

// A lane that asks again after a pause has nothing to wait for meanwhile, so the explorer lets time
// pass; the limit must leave room for that.
struct few_slots : names {
    explicit few_slots(std::uint32_t frames) : names({.frames = frames, .files = 1}) {
        w.view.request_wait_ns = 8500;
    }
};

TEST(retire, second_file_takes_the_slot_of_the_first) {
    few_slots s(1);
    for (const char* name : {"a", "b"})
        s.lane([&s, name](auto g) {
            const int result = s.open_and_close(g, name);
            explore::require(result == 0 || result == -ENFILE, "wrong error");
        });
    expect_sound(s.run({.preemptions = 2}));
}

// "a" was read and closed. One lane opens it again, the other opens "b" in its place: whichever way
// it goes, both read the bytes of their own file.
TEST(retire, against_a_reopen) {
    for (const bool reopener_reads : {false, true}) {
        few_slots s(1);
        s.prepare = [&] {
            s.server.given_already(0, 1);
            s.w.closed_now(0, 2 * page_bytes, 0, 1);
            s.w.load_now(0, 0, 0, content(1, 0, 0), true);
        };
        s.lane([&, reopener_reads](auto g) {
            const int result = reopener_reads ? s.use(g, "a", 1) : s.open_and_close(g, "a");
            explore::require(result % ENFILE == 0, "wrong error");
        });
        s.lane([&, reopener_reads](auto g) {
            const int result = reopener_reads ? s.open_and_close(g, "b") : s.use(g, "b", 2);
            explore::require(result % ENFILE == 0, "wrong error");
        });
        expect_sound(s.run({.preemptions = 1}));
    }
}

// A lane was told slot 0 and generation 1, and was then held up while the slot went on to
// generation 2. What it was told must not come into force, not even while the slot is vacant on its
// way to generation 3.
TEST(retire, answer_that_is_out_of_date) {
    for (const std::uint32_t told_generation : {1u, 2u}) {
        few_slots s(1);
        s.prepare = [&] {
            s.server.given_already(0, 2, 2);
            s.w.closed_now(0, 2 * page_bytes, 0, 2);
        };
        s.lane([&](auto g) {
            explore::require(s.open_and_close(g, "c") % ENFILE == 0, "wrong error");
        });
        s.lane([&, told_generation](auto g) {
            const engine::open_answer told{0, 0, told_generation, 2 * page_bytes, 0, 0, false, 2,
                                           0, 0};
            engine::wait_deadline deadline(g, s.w.view.request_wait_ns);
            if (engine::attach_file(g, s.w.view, told, deadline) != 0) return;
            explore::require(s.server.gave(0, told_generation, 2),
                             "an answer that was out of date came into force");
            explore::require(close(g, s.w.fs(), engine::make_descriptor(0, told_generation)) == 0,
                             "a close failed");
        });
        expect_sound(s.run());
    }
}

// A mapping outlives its descriptor: the file keeps its slot until the page is given back.
TEST(retire, not_while_a_page_is_mapped) {
    few_slots s(1);
    int fd = 0;
    s.prepare = [&] {
        s.server.given_already(0, 1);
        fd = s.w.open_now(0, 2 * page_bytes, 0);
        s.w.load_now(0, 0, 0, content(1, 0, 0), true);
        s.w.memory.words[0] += engine::pin_one;
    };
    s.lane([&](auto g) {
        const mapping m{s.w.view.frame_address(0), page_bytes, 0, 0};
        explore::require(close(g, s.w.fs(), fd) == 0, "a close failed");
        const auto* words = reinterpret_cast<const std::uint64_t*>(m.data);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            explore::require(atomic_load<order::relaxed>(words + i) == content(1, 0, i),
                             "a mapped page changed");
        explore::require(unmap(g, s.w.fs(), m) == 0, "an unmap failed");
    });
    s.lane([&](auto g) { explore::require(s.use(g, "b", 2) % ENFILE == 0, "wrong error"); });
    expect_sound(s.run());
}

// The only ring slot does not come free, so the host cannot be told: the file stays as it was.
TEST(retire, not_without_a_ring_slot) {
    names s({.frames = 1, .files = 1, .ring_slots = 1});
    s.prepare = [&] {
        s.server.given_already(0, 1);
        s.w.closed_now(0, 2 * page_bytes, 0, 1);
    };
    s.server.decide = [](const engine::ring_request& request) {
        return plan{.when =
                        request.operation == engine::op::ping ? timing::never : timing::at_once};
    };
    s.lane([&](auto g) { static_cast<void>(echo(g, s.w.view, 7)); });
    s.lane([&](auto g) {
        const std::int64_t code = engine::retire_one(g, s.w.view);
        explore::require(code == 0 || code == -EAGAIN, "wrong error");
        const bool is_live =
            engine::file_state(engine::look(&s.w.memory.file_words[0])) == engine::file_live;
        explore::require(is_live == (code != 0), "the slot has no file, and the host was not told");
    });
    expect_sound(s.run());
}

// Two slots are enough for two lanes with one open file each. While one looks for a slot to take
// down, the other closes the file in the first slot and opens the one in the second: at no moment
// was there no slot to take, though a look at one slot after the other finds none.
TEST(retire, as_many_slots_as_files_open_at_a_time) {
    names s({.frames = 1, .files = 2});
    s.w.view.request_wait_ns = s.w.view.frame_wait_ns = 8500;
    int fd = 0;
    s.prepare = [&] {
        s.server.given_already(0, 1);
        fd = s.w.open_now(0, 2 * page_bytes, 0);
        s.server.given_already(1, 2);
        s.w.closed_now(1, 2 * page_bytes, 8, 1);
    };
    s.held.references = 1;
    s.lane([&](auto g) { explore::require(s.open_and_close(g, "c") == 0, "an open failed"); });
    s.lane([&](auto g) {
        explore::require(close(g, s.w.fs(), fd) == 0, "a close failed");
        explore::require(open(g, s.w.fs(), "b") >= 0, "an open failed");
    });
    expect_sound(s.run({.preemptions = 1}));
}

TEST(retire, two_lanes_ask_for_one_leaf) {
    few_slots s(2);
    int fd = 0;
    s.held.references = 1;
    s.prepare = [&] {
        s.server.given_already(0, 1);
        fd = s.w.open_now(0, 3 * page_bytes, 0, true);
    };
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), fd, 1, 2); });
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), fd, 1, 2); });
    s.also([&] { explore::require(s.server.asked.reads == 1, "a page was loaded twice"); });
    expect_sound(s.run());
}

// The words of a directory become page words of the next file, and the other way round.
TEST(retire, directory_and_page_words_change_places) {
    few_slots s(1);
    s.lane([&](auto g) { explore::require(s.use(g, "huge", 4, 2) % ENFILE == 0, "wrong error"); });
    s.lane([&](auto g) { explore::require(s.use(g, "a", 1, 1) % ENFILE == 0, "wrong error"); });
    expect_sound(s.run({.preemptions = 1}));
}

}  // namespace
}  // namespace penstock::explore_kit
