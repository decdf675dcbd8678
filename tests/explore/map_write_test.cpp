// Pages that are changed through pointers: no change is lost, and nothing is marked that no lane
// changed.
#include <cstring>

#include "explore/written_file.hpp"
#include "rounds.hpp"

namespace penstock::explore_kit {
namespace {

TEST(map_write, two_change_words_of_one_page) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.changer(0, 0, 70));
    s.lane(s.changer(0, 1, 71));
    expect_sound(s.run({.preemptions = 2}));
}

// With a frame for a copy of each: both want to make it, and one finds it made.
TEST(map_write, two_that_each_have_a_frame_make_one_copy) {
    written_file s({.frames = 3});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.changer(0, 0, 70));
    s.lane(s.changer(0, 1, 71));
    expect_sound(s.run({.preemptions = 2}));
}

TEST(map_write, one_changes_and_another_writes) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.changer(0, 0, 70));
    s.lane(s.writer(0, 1, 71));
    expect_sound(s.run({.preemptions = 3}));
}

TEST(map_write, one_changes_while_another_writes_back) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.lane([&](auto g) {
        s.change(g, 0, 0, 70);
        explore::require(msync(g, s.w.fs(), s.fd, 0, page_bytes) == 0, "an msync failed");
        explore::require(s.w.memory.disk[0] == 70,
                         "an msync returned before the bytes were in the file");
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 2}));
}

// The second holder comes while the first one goes, or finds the copy being made or given back.
TEST(map_write, one_comes_while_another_goes) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 72);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.change(g, 0, 0, 70);
        s.change(g, 0, 0, 72);
    });
    s.lane(s.changer(0, 1, 71));
    expect_sound(s.run({.preemptions = 2}));
}

// Changed, maybe written back by the other lane, and changed back: the word equals the copy, and
// the file must not keep what it was in between.
TEST(map_write, a_word_that_is_changed_back) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.lane([&](auto g) {
        const writable_mapping held = map_write(g, s.w.fs(), s.fd, 0, page_bytes);
        explore::require(held.bytes == page_bytes, "a map failed");
        s.change(g, 0, 0, 70);
        s.change(g, 0, 0, content(1, 0, 0));
        explore::require(unmap(g, s.w.fs(), held) == 0, "an unmap failed");
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 2}));
}

// One of two frames is the copy's; the other lane needs a frame for its page meanwhile, and may be
// told that there is none.
TEST(map_write, the_frame_of_the_copy_is_taken_from_another_page) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.warm(1, 1);
    s.expect(0, 0, 70);
    s.lane(s.changer(0, 0, 70));
    s.lane([&](auto g) {
        std::uint64_t seen = 0;
        const std::int64_t got = read(g, s.w.fs(), s.fd, &seen, 8, page_bytes);
        explore::require(got == -ENOBUFS || (got == 8 && seen == content(1, 1, 0)),
                         "a reader got another page's bytes");
    });
    expect_sound(s.run({.preemptions = test::deep_preemptions}));
}

// A mapping that outlives its descriptor: whichever comes last, the close or the unmap, brings the
// change to the file and lets the host go.
TEST(map_write, one_closes_while_another_unmaps) {
    written_file s({.frames = 2});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.held.references = 0;
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.pristine[0] = engine::pristine_of(1);
        s.w.memory.frame_words[1] = engine::frame_copy;
        std::memcpy(s.w.memory.frames + page_bytes, s.w.memory.frames, page_bytes);
        s.w.memory.words[0] += engine::pin_one;
        s.w.memory.frame_pages[0] = 0;
        s.w.memory.writes[0].mappings = 1;
    };
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70,
                         "closed and unmapped by all, and the file does not have it");
        explore::require(s.w.memory.writes[0].dirty_pages == 0, "a page stayed dirty");
    });
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed"); });
    s.lane([&](auto g) {
        const std::uint64_t value = 70;
        std::byte* const frame = s.w.view.frame_address(0);
        g.copy_store(frame, reinterpret_cast<const std::byte*>(&value), 8);
        explore::require(unmap(g, s.w.fs(), writable_mapping{frame, page_bytes, 0, 0, 0}) == 0,
                         "an unmap failed");
    });
    expect_sound(s.run({.preemptions = test::deep_preemptions}));
}

}  // namespace
}  // namespace penstock::explore_kit
