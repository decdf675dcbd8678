// Canary: the page turns valid before its bytes are in the frame.
#define penstock penstock_publish_before_copy

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline void publish_early(page_word* word, std::uint32_t frame) { publish(word, frame); }

}  // namespace penstock::engine

#define begin_overwrite_in(c) publish_early(&c.words[load.word_index], load.frame)
#define publish(word, frame) static_cast<void>(word)
#define publish_and_unpin(word, frame) unpin(word)

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

TEST(canary, publish_before_copy) {
    one_file s({.frames = 2});
    s.lane(s.reader(0));
    s.lane(s.reader(0));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

}  // namespace penstock::explore_kit
