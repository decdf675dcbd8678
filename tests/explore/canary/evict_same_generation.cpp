// Canary: eviction does not count, so a copy cannot tell that its frame went away and came back.
#define penstock penstock_evict_same_generation

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_evict(page_word* word, page_word seen) {
    return atomic_compare_swap<order::acq_rel>(word, seen, seen & generation_mask);
}

}  // namespace penstock::engine

#define try_evict broken_evict

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, evict_same_generation) {
    one_file s({.frames = 1});
    s.warm(0, 0, false);
    s.lane(s.reader(0));
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 1);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
