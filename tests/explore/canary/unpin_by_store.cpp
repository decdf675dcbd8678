// Canary: a pin is taken back by a load and a store, so a pin that came in between is lost.
#define penstock penstock_unpin_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline void broken_unpin(page_word* word) {
    atomic_store<order::release>(word, load_relaxed(word) - pin_one);
}
inline bool broken_unpin_if_held(page_word* word, std::uint32_t) {
    broken_unpin(word);
    return true;
}

}  // namespace penstock::engine

#define unpin broken_unpin
#define unpin_if_held broken_unpin_if_held

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, unpin_by_store) {
    one_file s({.frames = 2});
    s.warm(0, 0, true);
    s.lane(s.mapper(0));
    s.lane(s.mapper(0));
    expect_caught(s.run(), "only mappings hold pins");
}

}  // namespace penstock::explore_kit
