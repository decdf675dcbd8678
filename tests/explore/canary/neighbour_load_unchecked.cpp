// Canary: a page that was copied from a neighbour is published without a look whether it still was
// there.
#define penstock penstock_neighbour_load_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/canary/fewer_looks.hpp"

#define is_as_seen(c, f, where) seen_by({.page = false}, c, f, where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_load_unchecked) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane(s.far_reader(1));
    expect_caught(s.run({.preemptions = 3}), "a mapped page changed");
}

}  // namespace penstock::explore_kit
