// Canary: who waited for a frame takes the one that he is told of without looking whether another came first.
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
    written_file s({.frames = 2, .ring_slots = 4}, 4);
    s.warm(0, 0);
    s.warm(1, 1);
    for (std::uint64_t page = 0; page < 4; ++page) s.expect(page, 0, 70 + page);
    s.expect(0, 1, 74);
    s.lane([&](auto g) {
        for (std::uint64_t page = 0; page < 3; ++page) s.store(g, page, 0, 70 + page);
        s.store(g, 0, 1, 74);
    });
    s.lane(s.writer(3, 0, 73));
    expect_caught(s.run({.preemptions = 1}), "the frame of a valid page names that page");
}

}  // namespace penstock::explore_kit
