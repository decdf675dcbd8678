// Canary: a failed load makes the page absent by a store, so a pin that came in meanwhile is lost.
#define penstock penstock_abandon_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

inline void broken_abandon(page_word* word) {
    const page_word seen = load_relaxed(word);
    atomic_store<order::release>(word, ((seen & pin_mask) - pin_one) | next_generation(seen));
}

}  // namespace penstock::engine

#define abandon broken_abandon

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, abandon_by_store) {
    one_file s({.frames = 1});
    s.server.decide = [&](const auto&) { return plan{.error = -EIO}; };
    s.lane([&](auto g) {
        std::byte got[page_bytes];
        read(g, s.w.fs(), s.fd, got, page_bytes, 0);
    });
    s.lane([&](auto) {
        engine::pin(&s.w.view.words[0]);
        engine::unpin(&s.w.view.words[0]);
    });
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "only mappings hold pins" ||
                out.violation == "assertion failed: pins_of(before) > 0")
        << out.violation;
}

}  // namespace penstock::explore_kit
