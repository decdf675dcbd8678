// Canary: two copies of one page are on their way to the file at once, and the older may come last.
// The lock also says which request carries the copy. A lane that takes the lock from its holder
// makes the holder forget its request, and a ring slot is never given back.
#define penstock penstock_no_frame_lock

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_lock(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::relaxed>(&c.write_locks[frame], lock_held);
    return true;
}

}  // namespace penstock::engine

#define try_lock_frame broken_lock

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, no_frame_lock) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 72);
    s.server.decide = [&](const engine::ring_request& request) {
        return plan{.when = request.operation == engine::op::write && request.published == 1
                                ? timing::late
                                : timing::at_once};
    };
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
        s.store(g, 0, 0, 72);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
    });
    s.lane([&](auto g) { static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes)); });
    const auto out = s.run({.preemptions = 2});
    EXPECT_TRUE(out.violation == "a page is clean, and the file does not have its bytes" ||
                out.violation == "a written word was lost" ||
                out.violation == "a page with marks is dirty" ||
                out.violation == "every ring slot was given back")
        << out.violation;
}

}  // namespace penstock::explore_kit
