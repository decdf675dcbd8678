// Loads that fail while others pin, and answers that come late or never: nothing is lost, and
// no lane waits for ever.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

struct failing_file : one_file {
    using one_file::one_file;
    // Reads or maps the page; the result is the bytes or one of the two errors.
    template <typename Lane>
    void try_read(const Lane& g, std::int64_t error, std::int64_t other_error) {
        std::uint64_t got[words_per_page] = {};
        const auto done = read(g, w.fs(), fd, got, page_bytes, 0);
        if (done == error || done == other_error) return;
        explore::require(
            done == page_bytes && got[0] == content(1, 0, 0) && got[1] == content(1, 0, 1),
            "wrong bytes");
    }
    template <typename Lane>
    void try_map(const Lane& g, std::int64_t error, std::int64_t other_error) {
        const mapping m = map(g, w.fs(), fd, 0, page_bytes);
        if (m.bytes == error || m.bytes == other_error) return;
        explore::require(m.bytes == page_bytes, "wrong result");
        const auto* words = reinterpret_cast<const std::uint64_t*>(m.data);
        explore::require(atomic_load<order::relaxed>(words) == content(1, 0, 0), "wrong bytes");
        explore::require(unmap(g, w.fs(), m) == 0, "an unmap failed");
    }
};

TEST(error, first_load_fails_while_another_lane_pins) {
    failing_file s({.frames = 1});
    s.server.decide = [&](const auto&) { return plan{.error = s.asked++ == 0 ? -EIO : 0}; };
    s.lane<pinning_lane>([&](auto g) { s.try_read(g, -EIO, -EIO); });
    s.lane([&](auto g) { s.try_map(g, -EIO, -EIO); });
    expect_sound(s.run());
}

// A pin that meets a page in loading is taken back; abandon has to keep it meanwhile.
TEST(error, abandon_against_a_pin_taken_in_any_state) {
    failing_file s({.frames = 1});
    s.server.decide = [&](const auto&) { return plan{.error = -EIO}; };
    s.lane([&](auto g) { s.try_read(g, -EIO, -EIO); });
    s.lane([&](auto) {
        engine::page_word* const word = &s.w.view.words[0];
        const engine::page_word seen = engine::pin(word);
        explore::require(!engine::is_valid(seen), "a failed load became valid");
        engine::unpin(word);
    });
    expect_sound(s.run());
}

TEST(error, eviction_against_a_failing_load) {
    failing_file s({.frames = 1});
    s.server.decide = [&](const engine::ring_request& r) {
        return plan{.error = r.offset == 0 ? -EIO : 0};
    };
    s.lane([&](auto g) { s.try_read(g, -EIO, -EIO); });
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), s.fd, 1, 1); });
    expect_sound(s.run());
}

// The host never answers: every lane gives up, and the frame comes back although the ring slot does
// not.
TEST(error, no_answer_ever) {
    failing_file s({.frames = 1, .ring_slots = 1});
    s.server.decide = [&](const auto&) { return plan{.when = timing::never}; };
    s.lane([&](auto g) { s.try_read(g, -ETIMEDOUT, -EAGAIN); });
    s.lane([&](auto g) { s.try_read(g, -ETIMEDOUT, -EAGAIN); });
    s.check = [&] {
        explore::require(s.w.memory.frame_words[0] == engine::frame_free, "the frame was lost");
    };
    expect_sound(s.run());
}

// The runtime interrupts the lanes while they wait, or before they do: each ends with that error or
// with its page.
TEST(error, interrupt_ends_every_wait) {
    failing_file s({.frames = 1, .ring_slots = 1});
    s.w.view.request_wait_ns = std::uint64_t{1} << 40;
    s.server.decide = [&](const auto&) { return plan{.when = timing::never}; };
    for (int i = 0; i < 2; ++i) s.lane([&](auto g) { s.try_read(g, -ECANCELED, -ECANCELED); });
    s.lane([&](auto) {
        atomic_store<order::relaxed, scope::system>(&s.w.memory.control.abort_code,
                                                    std::int64_t{-ECANCELED});
    });
    expect_sound(s.run());
}

// The host stands still: nothing but the heartbeat says so.
TEST(error, dead_host_ends_every_wait) {
    failing_file s({.frames = 1, .ring_slots = 1});
    s.w.view.request_wait_ns = std::uint64_t{1} << 40;
    s.w.view.host_wait_ns = 1500;
    s.server.decide = [&](const auto&) { return plan{.when = timing::never}; };
    for (int i = 0; i < 2; ++i) s.lane([&](auto g) { s.try_read(g, -ETIMEDOUT, -ETIMEDOUT); });
    expect_sound(s.run());
}

// The answer comes when the lane has just given up, or has not quite: the slot is reused only after
// the answer.
TEST(error, late_answer_to_a_slot_that_was_given_up) {
    failing_file s({.frames = 1, .ring_slots = 1});
    s.server.decide = [&](const auto&) {
        return plan{.when = s.asked++ == 0 ? timing::late : timing::at_once};
    };
    s.lane([&](auto g) {
        s.try_read(g, -ETIMEDOUT, -EAGAIN);
        s.try_read(g, -ETIMEDOUT, -EAGAIN);
    });
    expect_sound(s.run());
}

// The same of requests about a file, and of the one that gives its slot back.
TEST(error, late_answer_about_a_file_to_a_slot_that_was_given_up) {
    for (const engine::op operation : {engine::op::sync, engine::op::retire}) {
        one_file s({.frames = 1, .ring_slots = 1});
        s.prepare = [&s, operation, before = s.prepare] {
            before();
            if (operation == engine::op::retire) s.w.memory.file_words[0] -= 1;
        };
        s.held.references = operation == engine::op::retire ? 0 : 1;
        s.server.decide = [operation](const engine::ring_request& request) {
            return plan{.when = request.operation == operation ? timing::late : timing::at_once};
        };
        s.lane([&s, operation](auto g) {
            const std::int64_t code =
                operation == engine::op::retire
                    ? engine::retire_one(g, s.w.view)
                    : engine::ask_about_file(g, s.w.view, engine::op::sync, 0, 0);
            explore::require(code == 0 || code == -ETIMEDOUT, "wrong error");
            static_cast<void>(echo(g, s.w.view, 7));
        });
        expect_sound(s.run());
    }
}

TEST(error, late_answer_while_another_lane_wants_the_slot) {
    failing_file s({.frames = 2, .ring_slots = 1});
    s.server.decide = [&](const auto&) {
        return plan{.when = s.asked++ == 0 ? timing::late : timing::at_once};
    };
    s.lane([&](auto g) { s.try_read(g, -ETIMEDOUT, -EAGAIN); });
    s.lane([&](auto g) {
        std::uint64_t got[words_per_page] = {};
        const auto done = read(g, s.w.fs(), s.fd, got, page_bytes, page_bytes);
        explore::require(done == -ETIMEDOUT || done == -EAGAIN ||
                             (done == page_bytes && got[1] == content(1, 1, 1)),
                         "wrong bytes");
    });
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
