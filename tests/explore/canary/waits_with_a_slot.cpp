// Canary: a group that has posted its request waits for a frame, which a group may hold that waits
// for a slot.
#define penstock penstock_waits_with_a_slot

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/clock.hpp"

namespace penstock::engine {

template <typename Group, typename Keep>
std::int64_t take_waiting(const Group& g, const cache_view& c, std::uint64_t spread, bool,
                          wait_deadline& deadline, std::uint32_t& frame, Keep& keep) {
    return take_frame(g, c, spread, true, deadline, frame, keep);
}

}  // namespace penstock::engine

#define take_frame take_waiting

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, waits_with_a_slot) {
    one_file s({.frames = 1, .ring_slots = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read failed");
}

}  // namespace penstock::explore_kit
