// Canary: a close takes its share out of the file's count of dirty pages when it begins to write it
// back, and not when the answers are there. So an fsync beside it finds nothing to write.
#define penstock penstock_share_counted_early

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/flush.hpp"

namespace penstock::engine {

template <typename Group>
std::int64_t broken_hold(const Group& g, const cache_view& c, std::uint64_t word_index,
                         pending_write& w) {
    const std::int64_t outcome = hold_together(g, c, word_index, w);
    if (outcome == 1 && clear_dirty(&c.words[word_index]))
        count_dirty(c, w.file_slot, ~std::uint64_t{0});
    return outcome;
}

}  // namespace penstock::engine

#define hold_together broken_hold
#include "penstock/engine/close_share.hpp"
#undef hold_together

#include "explore/closing_groups.hpp"

namespace penstock::explore_kit {

TEST(canary, share_counted_early) {
    closing_groups s;
    s.held.references = 1;
    s.lane(s.closer());
    s.lane(s.syncer());
    expect_caught(s.run({.preemptions = 2}), "fsync returned, and the file does not have it");
}

}  // namespace penstock::explore_kit
