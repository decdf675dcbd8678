// Canary: rows are believed without a second look at the window word.
#define penstock penstock_rows_window_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/row_parts.hpp"

#define is_window_as_found(c, part) true

#include "explore/rows_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, rows_window_unchecked) {
    rows_of_file s({.frames = 1});
    s.lane(s.row_reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_caught(s.run({.preemptions = 3}), "a row has wrong bytes");
}

}  // namespace penstock::explore_kit
