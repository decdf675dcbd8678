// Canary: a slot that was given up may be claimed before the host has answered it.
#define penstock penstock_orphan_as_recycled

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/ring.hpp"

#define orphan_slot recycle_slot

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, orphan_as_recycled) {
    one_file s({.frames = 2, .ring_slots = 1});
    s.server.decide = [&](const auto&) {
        return plan{.when = s.asked++ == 0 ? timing::late : timing::at_once};
    };
    s.lane([&](auto g) {
        std::byte got[page_bytes];
        for (int i = 0; i < 2; ++i) read(g, s.w.fs(), s.fd, got, page_bytes, i * page_bytes);
    });
    expect_caught(s.run(), "a request changed before it was answered");
}

}  // namespace penstock::explore_kit
