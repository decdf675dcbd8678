// Canary: a missing page is claimed by a store, so two lanes may load it.
#define penstock penstock_claim_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline bool broken_claim(page_word* word, page_word seen) {
    atomic_store<order::relaxed>(word, (seen + pin_one) | state_loading | use_bit);
    return true;
}

}  // namespace penstock::engine

#define try_claim broken_claim

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, claim_by_store) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    const auto out = s.run();
    EXPECT_NE(out.violation, "");
}

}  // namespace penstock::explore_kit
