// Canaries of neighbours: bytes that a reader copies from another cache, which changes and leaves.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// The check of bytes from a neighbour with one look left out.
#ifdef CANARY_neighbour_looks

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

struct looks {
    bool page = true, generation = true, file = true, entry = true, table = true;
};

inline looks kept;  // all but the one that a test has left out

inline bool seen_by(const cache_view& c, const file_handle& f, const neighbour_page& page) {
    const page_word again = load_far(page.word),
                    ignored = kept.generation ? page_word{0} : generation_mask;
    const file_word file = load_file_there(c.neighbours[page.place], page.life);
    const neighbour_entry* const entry = entry_at(c, f, page.place);
    const std::uint64_t life = load_relaxed(&entry->life), table = load_relaxed(&entry->table);
    if (kept.page && !same_frame(again & ~ignored, page.seen & ~ignored)) return false;
    if (kept.file && !has_life(file, page.life)) return false;
    if (kept.table && table != page.table) return false;
    return !kept.entry || life == page.life;
}

}  // namespace penstock::engine

#define is_as_seen(c, f, where) seen_by(c, f, where)

#include "explore/neighbour_scenario.hpp"

// A reader does not look again at the neighbour's page word.
TEST(canary, neighbour_page_unchecked) {
    engine::kept = {.page = false};
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane(s.far_reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

// A reader does not see that a neighbour's page left its frame and came back.
TEST(canary, neighbour_same_generation) {
    engine::kept = {.generation = false};
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.evict_and_reload(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

// A reader does not see that the neighbour's table went to another file.
TEST(canary, neighbour_file_unchecked) {
    engine::kept = {.file = false};
    closed_next_door s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.give_table_away(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

// A reader does not see that its own host has withdrawn the file.
TEST(canary, neighbour_entry_unchecked) {
    engine::kept = {.entry = false};
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.open_and_store(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

// A page that was copied from a neighbour is published without a look whether it still was there.
TEST(canary, neighbour_load_unchecked) {
    engine::kept = {.page = false};
    linked_file s({.frames = 1});
    s.warm_far(0, 0);
    s.lane(s.mapper(0));
    s.lane(s.far_reader(1));
    expect_caught(s.run({.preemptions = 3}), "a mapped page changed");
}

// A reader does not see that the table which it used was that of an earlier entry.
TEST(canary, neighbour_table_unchecked) {
    engine::kept = {.table = false};
    linked_file s({.frames = 1}, 2);
    s.warm_far(0, 0);
    s.begin_with_another_entry();
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.entries[0].life = engine::make_entry_life(1, linked_file::far_slot, 1, false);
    };
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.enter(g); });
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// A reader counts itself after it has looked at a neighbour.
#ifdef CANARY_neighbour_counted_late

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline neighbour_page look_and_count(const cache_view& c, const file_handle& f, std::uint64_t page,
                                     std::uint32_t nearest = same_memory,
                                     std::uint32_t farthest = by_nvlink) {
    cache_view uncounted = c;
    uncounted.visits = nullptr;
    neighbour_page out = look_at_neighbours(uncounted, f, page, nearest, farthest);
    if (out.frame != nullptr) out.visit = enter_neighbours(c, page);
    return out;
}

}  // namespace penstock::engine

#define look_at_neighbours look_and_count

#include "explore/neighbour_scenario.hpp"

TEST(canary, neighbour_counted_late) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

#endif

// A reader takes itself off the count before its check.
#ifdef CANARY_neighbour_left_early

#include "penstock/engine/neighbour.hpp"

namespace penstock::engine {

inline bool leave_and_check(const cache_view& c, const file_handle& f, const neighbour_page& page) {
    leave_neighbours(c, page);
    return is_as_seen(c, f, page);
}

}  // namespace penstock::engine

#define is_as_seen(c, f, where) leave_and_check(c, f, where)
#define leave_neighbours(c, where) static_cast<void>(where)

#include "explore/neighbour_scenario.hpp"

TEST(canary, neighbour_left_early) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.leave(g); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

#endif

// The host unmaps a neighbour that readers still look at, and a reader waits for a neighbour
// without a deadline.
#ifdef CANARY_neighbour_not_drained

#include "explore/neighbour_scenario.hpp"

TEST(canary, neighbour_unmapped_before_the_drain) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto) { s.withdraw(), s.unmap(); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

// The round before alone: readers of this one are left.
TEST(canary, neighbour_drained_of_one_round) {
    leaving_neighbour s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.withdraw(), s.wait_for_round(g, 1), s.unmap(); });
    expect_caught(s.run({.preemptions = 3}), "memory that is gone was accessed");
}

TEST(canary, neighbour_waited_for_without_a_deadline) {
    stuck_neighbour s({.frames = 1});
    s.lane<timeless_lane>(s.reader(0));
    expect_caught(s.run(), "a fiber waits for ever");
}

#endif
