// Canary: a service thread moves the head of a ring by a store, so that two threads may take one
// request.
#define penstock penstock_head_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "service/ring_head.hpp"

namespace penstock::host {

inline bool take_by_store(const host_ring& ring, std::uint64_t& ticket) {
    ticket = atomic_load<order::relaxed>(ring.head);
    if (!is_posted(ring, ticket)) return false;
    atomic_store<order::relaxed>(ring.head, ticket + 1);
    return true;
}

}  // namespace penstock::host

#define take_next take_by_store

#include "explore/takers_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, head_by_store) {
    const auto out = takers_scenario(2, 2).run();
    EXPECT_TRUE(out.violation == "a request was taken twice" ||
                out.violation == "a thread served another request than it took")
        << out.violation;
}

}  // namespace penstock::explore_kit
