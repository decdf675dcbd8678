// Canary: a reader does not see that the table which it used was that of an earlier entry.
#define penstock penstock_neighbour_table_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/canary/fewer_looks.hpp"

#define is_as_seen(c, f, where) seen_by({.table = false}, c, f, where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

// The explorer runs loads in the order of the text, so the old table and the new life are there
// from the first: as a GPU may find them that loads both at once.
TEST(canary, neighbour_table_unchecked) {
    linked_file s({.frames = 1}, 2);
    s.warm_far(0, 0);
    s.begin_with_another_entry();
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.entries[0].life = engine::make_entry_life(1, linked_file::far_slot, 1, false);
    };
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.enter(g); });
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
