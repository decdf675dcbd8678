// Canary: a reader does not look again at the neighbour's page word.
#define penstock penstock_neighbour_page_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/canary/fewer_looks.hpp"

#define is_as_seen(c, f, where) seen_by({.page = false}, c, f, where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_page_unchecked) {
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane(s.far_reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
