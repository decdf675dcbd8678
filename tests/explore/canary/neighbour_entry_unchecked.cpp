// Canary: a reader does not see that its own host has withdrawn the file.
#define penstock penstock_neighbour_entry_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/canary/fewer_looks.hpp"

#define is_as_seen(c, f, where) seen_by({.entry = false}, c, f, where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_entry_unchecked) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.open_and_store(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
