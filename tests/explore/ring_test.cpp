// More lanes than ring slots: every lane gets the answer to its own question, and no slot is lost.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

struct echoes : scenario {
    explicit echoes(std::uint32_t ring_slots) : scenario({.ring_slots = ring_slots}) {
        prepare = [this] { asked = 0; };
    }
    void asker(std::uint64_t number, int times = 1) {
        lane([this, number, times](auto g) {
            for (int i = 0; i < times; ++i)
                explore::require(echo(g, w.view, number + static_cast<std::uint64_t>(i)) == 0,
                                 "a question got no answer");
        });
    }
    void patient_asker(std::uint64_t number) {
        lane([this, number](auto g) {
            const auto code = echo(g, w.view, number);
            explore::require(code == 0 || code == -ETIMEDOUT || code == -EAGAIN, "wrong result");
        });
    }
    // The first `count` questions are answered late (or never), the others at once.
    void delay(std::uint32_t count, timing when) {
        server.decide = [this, count, when](const auto&) {
            return plan{.when = asked++ < count ? when : timing::at_once};
        };
    }
    std::uint32_t asked = 0;
};

TEST(ring, two_lanes_share_one_slot) {
    echoes s(1);
    s.asker(10);
    s.asker(20);
    expect_sound(s.run());
}

TEST(ring, two_lanes_go_round_a_ring_of_two) {
    echoes s(2);
    s.asker(10, 2);
    s.asker(20, 2);
    expect_sound(s.run({.schedules = 3000000}));
}

TEST(ring, three_lanes_share_two_slots) {
    echoes s(2);
    s.asker(10);
    s.asker(20);
    s.asker(30);
    expect_sound(s.run());
}

TEST(ring, three_lanes_share_one_slot) {
    echoes s(1);
    s.asker(10);
    s.asker(20);
    s.asker(30);
    expect_sound(s.run({.schedules = 3000000}));
}

TEST(ring, late_answer_to_one_of_two) {
    echoes s(1);
    s.delay(1, timing::late);
    s.patient_asker(10);
    s.patient_asker(20);
    expect_sound(s.run());
}

// Slot 0 is given up and answered late; the lane that comes round to it must not see the late
// answer as its own.
TEST(ring, slot_that_was_given_up_comes_round_again) {
    echoes s(2);
    s.delay(2, timing::late);
    s.lane([&](auto g) {
        for (std::uint64_t i = 0; i < 4; ++i) echo(g, s.w.view, 10 + i);
    });
    expect_sound(s.run());
}

TEST(ring, slot_that_is_never_answered_is_never_reused) {
    echoes s(1);
    s.delay(1, timing::never);
    s.lane([&](auto g) {
        explore::require(echo(g, s.w.view, 10) == -ETIMEDOUT, "wrong result");
        explore::require(echo(g, s.w.view, 11, false) == -EAGAIN, "an unanswered slot was reused");
    });
    expect_sound(s.run());
}

// A claim that may not wait fails at once when the ring is full, and changes nothing.
TEST(ring, claims_that_may_not_wait) {
    echoes s(1);
    s.asker(10);
    s.lane([&](auto g) {
        const auto code = echo(g, s.w.view, 20, false);
        explore::require(code == 0 || code == -EAGAIN, "wrong result");
    });
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
