// Canary: a reader takes itself off the count before its check.
#define penstock penstock_neighbour_left_early

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline bool leave_and_check(const cache_view& c, const file_handle& f, const neighbour_page& page) {
    leave_neighbours(c, page);
    return is_as_seen(c, f, page);
}

}  // namespace penstock::engine

#define is_as_seen(c, f, where) leave_and_check(c, f, where)
#define leave_neighbours(c, where) static_cast<void>(where)

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_left_early) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

}  // namespace penstock::explore_kit
