// Canary: a vacant slot is filled with whatever the host once answered.
#define penstock penstock_old_answer_in_force

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/file_word.hpp"

#define is_later_generation(generation, than) ((generation) != (than))

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, old_answer_in_force) {
    names s({.frames = 1, .files = 1});
    s.w.view.request_wait_ns = 8500;
    s.prepare = [&] {
        s.server.given_already(0, 2, 2);
        s.w.closed_now(0, 2 * page_bytes, 0, 2);
    };
    s.lane([&](auto g) { s.open_and_close(g, "c"); });
    s.lane([&](auto g) {
        const engine::open_answer told{0, 0, 1, 2 * page_bytes, 0, 0, false, 1, 0, 0};
        engine::wait_deadline deadline(g, s.w.view.request_wait_ns);
        if (engine::attach_file(g, s.w.view, told, deadline) != 0) return;
        explore::require(s.server.gave(0, 1, 1), "an answer that was out of date came into force");
    });
    expect_caught(s.run(), "an answer that was out of date came into force");
}

}  // namespace penstock::explore_kit
