// Canary: a reader counts itself after it has looked at a neighbour.
#define penstock penstock_neighbour_counted_late

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline neighbour_page look_and_count(const cache_view& c, const file_handle& f, std::uint64_t page,
                                     std::uint32_t nearest = same_memory,
                                     std::uint32_t farthest = by_nvlink) {
    cache_view uncounted = c;
    uncounted.visits = nullptr;
    neighbour_page out = look_at_neighbours(uncounted, f, page, nearest, farthest);
    if (out.frame != nullptr) out.visit = enter_neighbours(c, page);
    return out;
}

}  // namespace penstock::engine

#define look_at_neighbours look_and_count

#include "explore/neighbour_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, neighbour_counted_late) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

}  // namespace penstock::explore_kit
