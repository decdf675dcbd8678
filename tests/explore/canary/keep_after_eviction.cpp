// Canary: the page is claimed in the tier only after it has left the cache.
#define penstock penstock_keep_after_eviction

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/tier.hpp"

namespace penstock::engine {

struct keep_afterwards {
    const cache_view& c;
    tier_save& save;

    void begin(frame_word owner) {
        save.word_index = owner_word_index(owner);
        save.file_slot = owner_file_slot(owner);
        save.wanted = c.tier.words != nullptr && !is_closed(look(&c.file_words[save.file_slot]));
    }
    void undo() { save.wanted = false; }
};

template <typename Group>
void claim_and_find_frame(const Group& g, const cache_view& c, tier_save& save) {
    const page_word seen = load_relaxed(&c.tier.words[save.word_index]);
    save.wanted = is_absent(seen) && try_claim(&c.tier.words[save.word_index], seen);
    find_frame(g, c, save);
}

}  // namespace penstock::engine

#define keep_in_tier keep_afterwards
#define find_frame claim_and_find_frame

#include "explore/tier_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, keep_after_eviction) {
    dropped_while_taken_down s;
    expect_caught(s.run_bounded(), "a valid page of the tier belongs to a live file");
}

}  // namespace penstock::explore_kit
