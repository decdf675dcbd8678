// Canary: a lane that takes an offered page over stores that the page is held, without looking
// whether another lane came first.
#define penstock penstock_page_taken_over_by_two

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_take_over(const cache_view& c, std::uint32_t frame) {
    if (atomic_load<order::relaxed>(&c.write_locks[frame]) != lock_offered) return false;
    atomic_store<order::relaxed>(&c.write_locks[frame], lock_held);
    return true;
}

}  // namespace penstock::engine

#define take_over broken_take_over

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, page_taken_over_by_two) {
    offered_neighbour s;
    expect_caught(s.run({.preemptions = 2}), "assertion failed: pins_of(before) > 0");
}

}  // namespace penstock::explore_kit
