// Canary: bytes are believed without a second look at the page words.
#define penstock penstock_through_pages_unchecked

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/through_look.hpp"

#define are_pages_as_seen(c, f, offset, look) true

#include "explore/through_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, through_pages_unchecked) {
    read_through_file s({.frames = 1});
    s.reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

}  // namespace penstock::explore_kit
