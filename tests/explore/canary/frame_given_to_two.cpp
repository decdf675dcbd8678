// Canary: a lane that waited for a frame takes the one that it is told of, without looking whether
// another lane came first.
#define penstock penstock_frame_given_to_two

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_take(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::relaxed>(&c.frame_words[frame], frame_busy);
    return true;
}

}  // namespace penstock::engine

#define take_given_frame broken_take

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, frame_given_to_two) {
    short_of_frames s;
    expect_caught(s.run({.preemptions = 1}), "the frame of a valid page names that page");
}

}  // namespace penstock::explore_kit
