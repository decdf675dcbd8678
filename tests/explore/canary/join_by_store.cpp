// Canary: a lane that shares the copy of a page that is mapped to be changed stores the number of
// holders, even if that number has changed since the lane looked.
#define penstock penstock_join_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_join(pristine_word* word, pristine_word seen) {
    make_pristine(word, seen + 1);
    return true;
}

}  // namespace penstock::engine

#define join_pristine broken_join

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, join_by_store) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.changer(0, 0, 70));
    s.lane(s.changer(0, 1, 71));
    expect_caught(s.run({.preemptions = 2}), "no page is held to be changed");
}

}  // namespace penstock::explore_kit
