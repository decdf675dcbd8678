// Two service threads that take from one ring, under every schedule.
#include "explore/hook.hpp"

#include "explore/takers_scenario.hpp"

namespace penstock::explore_kit {

TEST(takers, each_request_is_taken_once) {
    const auto out = takers_scenario(2, 2).run();
    EXPECT_EQ(out.violation, "") << out.trace;
    EXPECT_TRUE(out.complete);
}

TEST(takers, slots_come_round_again) {
    explore::limits bounds;
    bounds.preemptions = 2;
    const auto out = takers_scenario(3, 2).run(bounds);
    EXPECT_EQ(out.violation, "") << out.trace;
    EXPECT_TRUE(out.complete);
}

}  // namespace penstock::explore_kit
