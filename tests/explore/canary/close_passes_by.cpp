// Canary: a lane that closes goes on from the file word's newest value even if its reference has
// become the last. So what was written before is not written back.
#define penstock penstock_close_passes_by

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/close_share.hpp"

namespace penstock::engine {

inline std::uint64_t broken_limit(const cache_view&, std::uint32_t) { return 1; }

}  // namespace penstock::engine

#define references_without_share broken_limit
#include "penstock/engine/write.hpp"
#undef references_without_share

#include "explore/closing_groups.hpp"

namespace penstock::explore_kit {

TEST(canary, close_passes_by) {
    closing_groups s;
    s.w.view.close_leaves_pages = 2;  // no share is due
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[words_per_page] == 72,
                         "closed by all, and the file does not have it");
    });
    s.lane(s.closer());
    s.lane(s.closer());
    expect_caught(s.run({.preemptions = 2}), "closed by all, and the file does not have it");
}

}  // namespace penstock::explore_kit
