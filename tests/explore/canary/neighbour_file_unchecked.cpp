// Canary: a reader does not see that the neighbour's table went to another file.
#define penstock penstock_neighbour_file_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/canary/fewer_looks.hpp"

#define is_as_seen(c, f, where) seen_by({.file = false}, c, f, where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_file_unchecked) {
    closed_next_door s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.give_table_away(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
