// Canary: the word of a window is believed whatever life of its slot it belongs to.
#define penstock penstock_window_of_another_life

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

inline const std::byte* find_in_any_window(const cache_view& c, std::uint32_t slot, std::uint32_t,
                                           std::uint64_t offset) {
    if (c.windows == nullptr) return nullptr;
    const window_word w = load_relaxed(&c.windows[slot]);
    return find_in_window(c, slot, static_cast<std::uint32_t>(w >> window_generation_shift),
                          offset);
}

}  // namespace penstock::engine

#define find_in_window find_in_any_window

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, window_of_another_life) {
    one_file s({.frames = 1});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.window_now(0, 2,
                       [](std::uint64_t page, std::uint64_t i) { return content(2, page, i); });
    };
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
