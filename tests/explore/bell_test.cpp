// The doorbell under every schedule: no poster's request waits while its service thread sleeps.
#include "explore/hook.hpp"

#include "explore/bell_scenario.hpp"

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

}  // namespace penstock::explore_kit
