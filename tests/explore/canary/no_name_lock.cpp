// Canary: two lanes that open one new name do not keep out of each other's way.
#define penstock penstock_no_name_lock

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/file_word.hpp"

#define try_lock(lock) (static_cast<void>(lock), true)
#define unlock(lock) static_cast<void>(lock)

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

// Between the look and the claim of one lane another lane settles the name in an earlier slot.
TEST(canary, no_name_lock) {
    names s({.frames = 1, .names = 2});
    s.held.references = 2;
    for (int i = 0; i < 2; ++i) s.lane([&](auto g) { open(g, s.w.fs(), "a"); });
    expect_caught(s.run(), "a name is in one slot only");
}

}  // namespace penstock::explore_kit
