// Canary: an element is believed without a second look at the word.
#define penstock penstock_element_no_recheck

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/read.hpp"

#define unchanged_since_load(word, seen, loaded, nothing) true

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, element_no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane([&](auto) { look_and_compare(s.w.fs(), s.fd, 1, 0); });
    s.lane(s.reader(1));
    expect_caught(s.run(), "an element has wrong bytes");
}

TEST(canary, stretch_no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane([&](auto g) { visit_and_compare_by_looks(g, s.w.fs(), s.fd, 1, 0); });
    s.lane(s.reader(1));
    expect_caught(s.run(), "a stretch has wrong bytes");
}

}  // namespace penstock::explore_kit
