// Canary: bytes are believed without a second look at the window word.
#define penstock penstock_through_window_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/through_look.hpp"

#define is_source_as_seen(c, f, look) true

#include "explore/through_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, through_window_unchecked) {
    read_through_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
