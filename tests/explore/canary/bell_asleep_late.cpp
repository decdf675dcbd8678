// Canary: the sleeper says that it sleeps only when it begins to wait, after its last look for
// work.
#define penstock penstock_bell_asleep_late

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "os/bell_word.hpp"

namespace penstock::host {

inline bool begin_and_see_rung(std::uint32_t* word) {
    if (atomic_load<order::relaxed>(word) == bell_awake) begin_bell_sleep(word);
    return is_rung(word);
}
inline void begin_nothing(std::uint32_t*) {}

}  // namespace penstock::host

#define begin_bell_sleep begin_nothing
#define is_rung begin_and_see_rung

#include "explore/bell_scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, bell_asleep_late) {
    EXPECT_EQ(bell_scenario(1).run().violation, "a fiber waits for ever");
}

}  // namespace penstock::explore_kit
