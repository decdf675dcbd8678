// Canary: a flusher passes by every page that is not dirty. It also passes by a page that another
// lane's write-back has cleaned and not looked at again.
#define penstock penstock_flush_passes_by

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_look(page_word seen) { return is_valid(seen) && is_dirty(seen); }

}  // namespace penstock::engine

#define may_have_marks broken_look

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, flush_passes_by) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
    });
    s.lane([&](auto g) {
        s.store(g, 0, 1, 71);
        static_cast<void>(fsync(g, s.w.fs(), s.fd));
        explore::require(s.w.memory.disk[1] == 71,
                         "an fsync returned before the bytes were in the file");
    });
    expect_caught(s.run({.preemptions = 2}), "an fsync returned before the bytes were in the file");
}

}  // namespace penstock::explore_kit
