// Steps of service threads under every schedule: no poster's request waits while its service thread
// sleeps; two that take from one ring take each request once.
#include "explore/hook.hpp"

#include "explore/bell_scenario.hpp"
#include "explore/takers_scenario.hpp"

namespace penstock::explore_kit {

TEST(bell, no_wake_up_is_lost) {
    for (const std::uint32_t posters : {1u, 2u}) {
        const auto out = bell_scenario(posters).run();
        EXPECT_EQ(out.violation, "") << posters << " posters\n" << out.trace;
        EXPECT_TRUE(out.complete);
        RecordProperty("schedules", static_cast<int>(out.schedules));
    }
}

TEST(bell, three_posters_and_a_few_switches) {
    explore::limits bounds;
    bounds.preemptions = 3;
    const auto out = bell_scenario(3).run(bounds);
    EXPECT_EQ(out.violation, "") << out.trace;
    EXPECT_TRUE(out.complete);
}

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
