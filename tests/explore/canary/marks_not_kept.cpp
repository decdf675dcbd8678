// Canary: a write-back does not put the marks back of a page that is mapped to be changed.
#define penstock penstock_marks_not_kept

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_look_for_copy(const cache_view&, std::uint32_t) { return false; }

}  // namespace penstock::engine

#define has_copy broken_look_for_copy

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, marks_not_kept) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.lane([&](auto g) {
        const writable_mapping held = map_write(g, s.w.fs(), s.fd, 0, page_bytes);
        s.change(g, 0, 0, 70);
        s.change(g, 0, 0, content(1, 0, 0));
        static_cast<void>(unmap(g, s.w.fs(), held));
    });
    s.lane(s.flusher());
    expect_caught(s.run({.preemptions = 2}),
                  "a page is clean, and the file does not have its bytes");
}

}  // namespace penstock::explore_kit
