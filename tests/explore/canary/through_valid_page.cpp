// Canary: bytes come from the window though the page is in the cache.
#define penstock penstock_through_valid_page

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/window.hpp"

#define may_read_past(seen) true

#include "explore/through_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, through_valid_page) {
    read_through_file s({.frames = 1});
    s.reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

}  // namespace penstock::explore_kit
