// Canary: a reference is added by a store, so one that came in between is lost.
#define penstock penstock_reference_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_reference(file_word* word, std::uint32_t generation) {
    const file_word seen = look(word);
    if (!is_open(seen, generation)) return false;
    atomic_store<order::release>(word, seen + 1);
    return true;
}

}  // namespace penstock::engine

#define try_reference broken_reference

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, reference_by_store) {
    names s({.frames = 1});
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) { explore::require(s.open_and_close(g, "a") == 0, "an open failed"); });
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "a close failed" ||
                out.violation == "only open descriptors hold references")
        << out.violation;
}

}  // namespace penstock::explore_kit
