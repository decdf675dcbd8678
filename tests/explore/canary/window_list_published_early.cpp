// Canary: pages of one call that come through a window turn valid before their bytes are there.
#define penstock penstock_window_list_published_early

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

template <typename View, typename Loads>
inline void publish_early(const View& c, const Loads* loads, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i)
        publish(&c.words[loads[i].word_index], loads[i].frame);
}

}  // namespace penstock::engine

#define begin_overwrites_in(c) publish_early(c, loads, count)
#define publish_and_unpin(word, frame) unpin(word)

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, window_list_published_early) {
    one_file s({.frames = 2});
    s.in_window();
    const auto both = [&](auto g) {
        std::uint64_t got[2 * words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, got, sizeof got, 0) == sizeof got,
                         "a read failed");
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            explore::require(got[i] == content(1, i / words_per_page, i % words_per_page),
                             "a read delivered wrong bytes");
    };
    s.lane(both);
    s.lane(both);
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
