// Canary: the page is published and the loader's pin gone before the frame word names the page.
#define penstock penstock_frame_named_late

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "explore/explorer.hpp"
#include "penstock/engine/clock.hpp"

namespace penstock::engine {

// What the lane that runs has put off; only loaders name a page in a frame word, and they publish
// right after.
inline std::uint64_t put_off_frame[::explore::max_fibers], put_off_word[::explore::max_fibers];

template <typename Pool>
inline void name_later(const Pool& c, std::uint32_t frame, frame_word value) {
    if ((value & frame_state_mask) != frame_owned) return set_frame_word(c, frame, value);
    const auto id = ::explore::explorer::current()->running_fiber();
    put_off_frame[id] = reinterpret_cast<std::uint64_t>(&c.frame_words[frame]);
    put_off_word[id] = value;
}
inline void publish_and_name(page_word* word, std::uint32_t frame) {
    publish_and_unpin(word, frame);
    const auto id = ::explore::explorer::current()->running_fiber();
    if (put_off_frame[id] != 0)
        atomic_store<order::release>(reinterpret_cast<frame_word*>(put_off_frame[id]),
                                     put_off_word[id]);
    put_off_frame[id] = 0;
}

}  // namespace penstock::engine

#define set_frame_word name_later
#define publish_and_unpin publish_and_name

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

// The lane that puts off its store is held up; the file is taken down meanwhile and its page
// evicted through the page word, which frees the frame. The late store then names a page that is
// gone.
TEST(canary, frame_named_late) {
    one_file s({.frames = 1});
    s.prepare = [&, before = s.prepare] {
        before();
        for (auto& frame : engine::put_off_frame) frame = 0;
    };
    s.lane(s.reader(0));
    s.lane([&](auto) { engine::sweep_words(s.w.view, 0, 2); });
    expect_caught(s.run(), "an owned frame is named by its page");
}

}  // namespace penstock::explore_kit
