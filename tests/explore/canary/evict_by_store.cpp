// Canary: a page is evicted by a store, so a pin that came in after the look is lost.
#define penstock penstock_evict_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_evict(page_word* word, page_word seen) {
    atomic_store<order::relaxed>(word, next_generation(seen));
    return true;
}

}  // namespace penstock::engine

#define try_evict broken_evict

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, evict_by_store) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.mapper(0));
    s.lane(s.reader(1));
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "a mapped page changed" ||
                out.violation == "assertion failed: pins_of(before) > 0" ||
                out.violation == "an unmap failed")
        << out.violation;
}

}  // namespace penstock::explore_kit
