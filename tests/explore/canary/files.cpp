// Canaries of files: how groups open one together, and how the last of them closes it.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// Two lanes that open one new name do not keep out of each other's way.
#ifdef CANARY_no_name_lock

#include "penstock/engine/file_word.hpp"

#define try_lock(lock) (static_cast<void>(lock), true)
#define unlock(lock) static_cast<void>(lock)

#include "explore/scenario.hpp"

// Between the look and the claim of one lane another lane settles the name in an earlier slot.
TEST(canary, no_name_lock) {
    names s({.frames = 1, .names = 2});
    s.held.references = 2;
    for (int i = 0; i < 2; ++i) s.lane([&](auto g) { open(g, s.w.fs(), "a"); });
    expect_caught(s.run(), "a name is in one slot only");
}

#endif

// A search believes what it read of a slot without a second look at the slot's word. So it finds
// the file of the name that took the slot meanwhile by the name that had it.
#ifdef CANARY_name_unchecked

#include "penstock/engine/file_word.hpp"

#define name_unchanged(word, seen) true

#include "explore/scenario.hpp"

TEST(canary, name_unchecked) {
    names s({.frames = 1, .files = 2, .names = 1});
    s.w.view.request_wait_ns = 8500;
    s.held.references = 2;
    s.prepare = [&s] {
        s.server.given_already(0, 1);
        s.w.open_now(0, 2 * page_bytes, 0);
        s.name_now(0, "a", 0);
    };
    s.lane([&](auto g) { open(g, s.w.fs(), "b"); });
    s.lane([&](auto g) {
        const int fd = open(g, s.w.fs(), "a");
        explore::require(engine::descriptor_slot(s.w.view, fd) == 0, "a name led to another file");
        explore::require(close(g, s.w.fs(), fd) == 0, "a close failed");
    });
    expect_caught(s.run({.preemptions = 2}), "a name led to another file");
}

#endif

// A closed file is counted as opened after the step that opens it. Before that an old name still
// has its count.
#ifdef CANARY_opening_counted_late

#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_reopen(file_word* word, std::uint32_t generation, opening_count* openings) {
    bool was_closed = false;
    const bool is_done =
        try_add_reference<order::acq_rel>(word, lanes_at(word, generation, 0), [&](file_word seen) {
            was_closed = references_of(seen) == 0;
            return file_state(seen) == file_live && file_generation(seen) == generation;
        });
    if (is_done && was_closed) count_opening(openings);
    return is_done;
}

}  // namespace penstock::engine

#define try_reopen broken_reopen

#include "explore/scenario.hpp"

TEST(canary, opening_counted_late) {
    moved_name s;
    s.open_both();
    expect_caught(s.run({.preemptions = 2}), "a name led to the file that it had before");
}

#endif

// A reference is added by a store, so one that came in between is lost.
#ifdef CANARY_reference_by_store

#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_reference(file_word* word, std::uint32_t generation,
                             const opening_count* openings, opening_count known,
                             const std::uint32_t*) {
    const file_word seen = look(word);
    if (!is_open(seen, generation) || openings_of(openings) != known) return false;
    atomic_store<order::release>(word, seen + 1);
    return true;
}

}  // namespace penstock::engine

#define try_reference_by_name broken_reference

#include "explore/scenario.hpp"

TEST(canary, reference_by_store) {
    names s({.frames = 1});
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) { explore::require(s.open_and_close(g, "a") == 0, "an open failed"); });
    const auto out = s.run();
    EXPECT_TRUE(out.violation == "a close failed" ||
                out.violation == "only open descriptors hold references")
        << out.violation;
}

#endif

// A lane that shares the copy of a page that is mapped to be changed stores the number of holders,
// even if that number has changed since the lane looked.
#ifdef CANARY_join_by_store

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline bool broken_join(pristine_word* word, pristine_word seen) {
    make_pristine(word, seen + 1);
    return true;
}

}  // namespace penstock::engine

#define join_pristine broken_join

#include "explore/written_file.hpp"

TEST(canary, join_by_store) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.changer(0, 0, 70));
    s.lane(s.changer(0, 1, 71));
    expect_caught(s.run({.preemptions = 2}), "no page is held to be changed");
}

#endif

// A lane that closes takes its reference from the word even if the word has changed since the lane
// looked. So of two lanes that close at once neither is the last.
#ifdef CANARY_last_close_unseen

#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_release(file_word* word, file_word) {
    atomic_fetch_add<order::release>(word, ~file_word{0});
    return true;
}

}  // namespace penstock::engine

#define try_release_from broken_release

#include "explore/written_file.hpp"

TEST(canary, last_close_unseen) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.held.references = 0;
    s.prepare = [&s, before = s.prepare] {
        before();
        ++s.w.memory.file_words[0];
        ++s.w.memory.writes[0].writers;
    };
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70, "closed by all, and the file does not have it");
    });
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
    });
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed"); });
    expect_caught(s.run({.preemptions = 3}), "closed by all, and the file does not have it");
}

#endif

// A lane whose close would be the last goes on from the file word's newest value if another lane
// has opened the file since. So it has the host drop the writer that the other lane needs.
#ifdef CANARY_settles_for_others

#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_release(file_word* word, file_word seen) {
    if (try_release_from(word, seen)) return true;
    const file_word newest = look(word);
    return references_of(newest) >= 2 && try_release_from(word, newest);
}

}  // namespace penstock::engine

#define try_release_from broken_release

#include "explore/written_file.hpp"

TEST(canary, settles_for_others) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.held.references = 0;
    s.anything_goes(0, 0);
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed"); });
    s.lane([&](auto g) {
        if (engine::add_reference(g, s.w.view, s.fd) < 0) return;
        engine::count_writers(s.w.view, 0, 1);
        s.store(g, 0, 0, 70);
        explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
    });
    expect_caught(s.run({.preemptions = 3}), "a file was settled while a group wrote it");
}

#endif

// A close takes its share out of the file's count of dirty pages when it begins to write it back,
// and not when the answers are there. So an fsync beside it finds nothing to write.
#ifdef CANARY_share_counted_early

#include "penstock/engine/flush.hpp"

namespace penstock::engine {

template <typename Group>
std::int64_t broken_hold(const Group& g, const cache_view& c, std::uint64_t word_index,
                         pending_write& w) {
    const std::int64_t outcome = hold_together(g, c, word_index, w);
    if (outcome == 1 && clear_dirty(&c.words[word_index]))
        count_dirty(c, w.file_slot, ~std::uint64_t{0});
    return outcome;
}

}  // namespace penstock::engine

#define hold_together broken_hold
#include "penstock/engine/close_share.hpp"
#undef hold_together

#include "explore/written_file.hpp"

TEST(canary, share_counted_early) {
    closing_groups s;
    s.held.references = 1;
    s.lane(s.closer());
    s.lane(s.syncer());
    expect_caught(s.run({.preemptions = 2}), "fsync returned, and the file does not have it");
}

#endif

// A lane that closes goes on from the file word's newest value even if its reference has become the
// last. So what was written before is not written back.
#ifdef CANARY_close_passes_by

#include "penstock/engine/close_share.hpp"

namespace penstock::engine {

inline std::uint64_t broken_limit(const cache_view&, std::uint32_t) { return 1; }

}  // namespace penstock::engine

#define references_without_share broken_limit
#include "penstock/engine/write.hpp"
#undef references_without_share

#include "explore/written_file.hpp"

TEST(canary, close_passes_by) {
    closing_groups s;
    s.w.view.close_leaves_pages = 2;  // no share is due
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[words_per_page] == 72,
                         "closed by all, and the file does not have it");
    });
    s.lane(s.closer());
    s.lane(s.closer());
    expect_caught(s.run({.preemptions = 2}), "closed by all, and the file does not have it");
}

#endif

// A close sends the number of the newest answer that a lane took, and not how many were taken. So
// the host drops the writer of a lane whose older answer is under way.
#ifdef CANARY_newest_answer

#include "penstock/engine/dirty.hpp"

#define count_answer(c, slot) atomic_raise<order::relaxed>(&(c).writes[slot].answers, answer.epoch)

#include "explore/written_file.hpp"

TEST(canary, newest_answer) {
    closed_file s;
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.opens_and_writes("a", 0, 70));
    s.lane(s.opens_and_writes("alias", 1, 71));
    expect_caught(s.run({.preemptions = 2}), "a file was settled while a group wrote it");
}

#endif

// An opener looks for a writer, and whether the file was opened anew, before it takes a reference,
// and not as it does. The writer may have closed the file meanwhile, and a reader opened it.
#ifdef CANARY_writer_looked_for_before

#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_reference(file_word* word, std::uint32_t generation,
                             const opening_count* openings, opening_count known,
                             const std::uint32_t* writers) {
    if (writers != nullptr && atomic_load<order::acquire>(writers) == 0) return false;
    return openings_of(openings) == known && try_reference(word, generation);
}

}  // namespace penstock::engine

#define try_reference_by_name broken_reference

#include "explore/written_file.hpp"

TEST(canary, writer_looked_for_before) {
    closed_file s;
    s.expect(0, 0, 70);
    s.held.references = 1;
    s.lane(s.goes_and_reads());
    s.lane(s.comes_and_writes(70));
    expect_caught(s.run({.preemptions = 2}), "a file was settled while a group wrote it");
}

#endif

// A cut does not close the gate: a write may end between its steps.
#ifdef CANARY_gate_stays_open

#include "penstock/engine/dirty.hpp"

#define close_gate(c, slot) static_cast<void>(c)

#include "explore/cut_scenario.hpp"

TEST(canary, gate_stays_open) {
    cut_file s;
    s.warm(1, 1);
    s.lane(s.cutter());
    s.lane([&](auto g) { s.write_word(g); });
    const auto out = s.run({.preemptions = 2});
    EXPECT_NE(out.violation, "");
}

#endif

// A cut does not wait for a group that is in.
#ifdef CANARY_cut_beside_a_group

#include "penstock/engine/dirty.hpp"

#define are_groups_in(c, slot) false

#include "explore/cut_scenario.hpp"

TEST(canary, cut_beside_a_group) {
    cut_file s;
    s.warm(1, 1);
    s.lane(s.cutter());
    s.lane([&](auto g) { s.write_word(g); });
    const auto out = s.run({.preemptions = 2});
    EXPECT_NE(out.violation, "");
}

#endif

// A cut of which the host's answer did not come opens the gate.
#ifdef CANARY_late_cut_opens

#include "penstock/engine/dirty.hpp"

namespace penstock::engine {

inline void broken_set(const cache_view& c, std::uint32_t slot, std::uint64_t) {
    set_gate(c, slot, 0);
}

}  // namespace penstock::engine

#define set_gate broken_set

#include "explore/cut_scenario.hpp"

TEST(canary, late_cut_opens) {
    late_cut_file s;
    expect_caught(s.run({.preemptions = 2}), "a late cut took a write");
}

#endif

// A cut clears a page that is held by a pointer, and leaves the page's marks.
#ifdef CANARY_cut_keeps_marks

#include "penstock/engine/dirty.hpp"

#define marks_within(number, begin, end) (number == 0 && begin == 0 && end == 0 ? ~0ull : 0ull)

#include "explore/cut_scenario.hpp"

TEST(canary, cut_keeps_marks) {
    held_cut_file s;
    const auto out = s.run({.preemptions = 2});
    EXPECT_NE(out.violation, "");
}

#endif

// A cut keeps no write-back from the pages that are dirty after its flush.
#ifdef CANARY_cut_beside_a_write_back

#include "penstock/engine/flush.hpp"
#include "penstock/engine/pristine.hpp"

#define hold_dirty(c, word_index, w) (static_cast<void>(w), std::int64_t{0})
#include "penstock/engine/cut.hpp"
#undef hold_dirty

#include "explore/cut_scenario.hpp"

TEST(canary, cut_beside_a_write_back) {
    synced_cut_file s;
    s.lane(s.flusher());
    s.lane(s.unmapper());
    expect_caught(s.run({.preemptions = 1}), "the file reaches behind the device's end");
}

#endif
