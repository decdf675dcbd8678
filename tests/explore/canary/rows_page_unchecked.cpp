// Canary: rows are believed without a second look at the page words.
#define penstock penstock_rows_page_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/row_parts.hpp"

#define is_page_as_found(c, rows, i, number, part) \
    (static_cast<void>(rows), static_cast<void>(i), static_cast<void>(number), true)

#include "explore/rows_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, rows_page_unchecked) {
    rows_of_file s({.frames = 1});
    s.row_reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

}  // namespace penstock::explore_kit
