// Canaries of the host: it unmaps a neighbour that readers still look at, and a reader waits for a
// neighbour without a deadline.
#define penstock penstock_neighbour_not_drained

#include "explore/canary/standard.hpp"
#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_unmapped_before_the_drain) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto) { s.withdraw(), s.unmap(); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

// The round before alone: readers of this one are left.
TEST(canary, neighbour_drained_of_one_round) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.withdraw(), s.wait_for_round(g, 1), s.unmap(); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

TEST(canary, neighbour_waited_for_without_a_deadline) {
    stuck_neighbour s({.frames = 1});
    s.lane<timeless_lane>(s.reader(0));
    expect_caught(s.run(), "a fiber waits for ever");
}

}  // namespace penstock::explore_kit
