// Canary: a ring that comes between the sleeper's last look for work and its wait is forgotten.
#define penstock penstock_bell_ring_forgotten

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "os/bell_word.hpp"

namespace penstock::host {

// A ring counts only from the second look on, as if the wait began with a word of its own.
inline bool forget_first_ring(std::uint32_t* word) {
    static thread_local bool waits = false;
    if (waits) return !(waits = !is_rung(word));
    waits = true;
    atomic_store<order::relaxed>(word, static_cast<std::uint32_t>(bell_asleep));
    return false;
}

}  // namespace penstock::host

#define is_rung forget_first_ring

#include "explore/bell_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, bell_ring_forgotten) {
    EXPECT_EQ(bell_scenario(1).run().violation, "a fiber waits for ever");
}

}  // namespace penstock::explore_kit
