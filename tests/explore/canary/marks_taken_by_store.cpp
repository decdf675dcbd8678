// Canary: the marks of a page are taken by a load and a store, so one that is made in between is
// lost.
#define penstock penstock_marks_taken_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline std::uint64_t broken_take(std::uint64_t* marks) {
    const std::uint64_t taken = atomic_load<order::acquire>(marks);
    atomic_store<order::relaxed>(marks, std::uint64_t{0});
    return taken;
}

}  // namespace penstock::engine

#define take broken_take

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, marks_taken_by_store) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 0, 1, 71);
    });
    s.lane(s.flusher());
    expect_caught(s.run({.preemptions = 3}),
                  "a page is clean, and the file does not have its bytes");
}

}  // namespace penstock::explore_kit
