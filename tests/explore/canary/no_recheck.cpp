// Canary: a copy without a pin is believed without a second look at the word.
#define penstock penstock_no_recheck

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

#define validate(word, seen) true

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, no_recheck) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
