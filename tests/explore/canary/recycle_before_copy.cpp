// Canary: the ring slot is given back before its staging area is read.
#define penstock penstock_recycle_before_copy

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline void recycle_early(const cache_view& c, const ring_ticket& at) { recycle_slot(c, at); }
inline void recycled_already(const cache_view&, const ring_ticket&) {}

}  // namespace penstock::engine

#define begin_overwrite_in(c) recycle_early(c, load.at)
#define recycle_slot recycled_already

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, recycle_before_copy) {
    one_file s({.frames = 2, .ring_slots = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
