// Canaries of frames and of changed pages: the marks, the copy that is written back, and what a
// group waits for.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// Two copies of one page are on their way to the file at once, and the older may come last. The
// lock also says which request carries the copy. A lane that takes the lock from its holder makes
// the holder forget its request, and a ring slot is never given back.
#ifdef CANARY_no_frame_lock

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_lock(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::relaxed>(&c.write_locks[frame], lock_held);
    return true;
}

}  // namespace penstock::engine

#define try_lock_frame broken_lock

#include "explore/written_file.hpp"

TEST(canary, no_frame_lock) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 72);
    s.server.decide = [&](const engine::ring_request& request) {
        return plan{.when = request.operation == engine::op::write && request.published == 1
                                ? timing::late
                                : timing::at_once};
    };
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
        s.store(g, 0, 0, 72);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
    });
    s.lane([&](auto g) { static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes)); });
    const auto out = s.run({.preemptions = 2});
    EXPECT_TRUE(out.violation == "a page is clean, and the file does not have its bytes" ||
                out.violation == "a written word was lost" ||
                out.violation == "a page with marks is dirty" ||
                out.violation == "every ring slot was given back")
        << out.violation;
}

#endif

// A lane that waited for a frame takes the one that it is told of, without looking whether another
// lane came first.
#ifdef CANARY_frame_given_to_two

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_take(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::relaxed>(&c.frame_words[frame], frame_busy);
    return true;
}

}  // namespace penstock::engine

#define take_given_frame broken_take

#include "explore/written_file.hpp"

TEST(canary, frame_given_to_two) {
    short_of_frames s;
    expect_caught(s.run({.preemptions = 1}), "the frame of a valid page names that page");
}

#endif

// A lane that takes an offered page over stores that the page is held, without looking whether
// another lane came first.
#ifdef CANARY_page_taken_over_by_two

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_take_over(const cache_view& c, std::uint32_t frame) {
    if (atomic_load<order::relaxed>(&c.write_locks[frame]) != lock_offered) return false;
    atomic_store<order::relaxed>(&c.write_locks[frame], lock_held);
    return true;
}

}  // namespace penstock::engine

#define take_over broken_take_over

#include "explore/written_file.hpp"

TEST(canary, page_taken_over_by_two) {
    offered_neighbour s;
    expect_caught(s.run({.preemptions = 2}), "assertion failed: pins_of(before) > 0");
}

#endif

// The page is published and the loader's pin gone before the frame word names the page.
#ifdef CANARY_frame_named_late

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

#endif

// A group that has posted its request waits for a frame, which a group may hold that waits for a
// slot.
#ifdef CANARY_waits_with_a_slot

#include "penstock/engine/clock.hpp"

namespace penstock::engine {

template <typename Group, typename Keep>
std::int64_t take_waiting(const Group& g, const cache_view& c, std::uint64_t spread, bool,
                          wait_deadline& deadline, std::uint32_t& frame, Keep& keep) {
    return take_frame(g, c, spread, true, deadline, frame, keep);
}

}  // namespace penstock::engine

#define take_frame take_waiting

#include "explore/scenario.hpp"

TEST(canary, waits_with_a_slot) {
    one_file s({.frames = 1, .ring_slots = 1});
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read failed");
}

#endif

// A write-back does not put the marks back of a page that is mapped to be changed.
#ifdef CANARY_marks_not_kept

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_look_for_copy(const cache_view&, std::uint32_t) { return false; }

}  // namespace penstock::engine

#define has_copy broken_look_for_copy

#include "explore/written_file.hpp"

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

#endif

// The marks of a page are taken by a load and a store, so one that is made in between is lost.
#ifdef CANARY_marks_taken_by_store

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline std::uint64_t broken_take(std::uint64_t* marks) {
    const std::uint64_t taken = atomic_load<order::acquire>(marks);
    atomic_store<order::relaxed>(marks, std::uint64_t{0});
    return taken;
}

}  // namespace penstock::engine

#define take broken_take

#include "explore/written_file.hpp"

TEST(canary, marks_taken_by_store) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 0, 1, 71);
    });
    s.lane(s.flusher());
    expect_caught(s.run({.preemptions = 3}),
                  "a page is clean, and the file does not have its bytes");
}

#endif

// A flusher passes by every page that is not dirty. It also passes by a page that another lane's
// write-back has cleaned and not looked at again.
#ifdef CANARY_flush_passes_by

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_look(page_word seen) { return is_valid(seen) && is_dirty(seen); }

}  // namespace penstock::engine

#define may_have_marks broken_look

#include "explore/written_file.hpp"

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

#endif
