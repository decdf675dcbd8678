// Writers, write-backs and evictions of the same pages: nothing that was written is lost, and
// nothing else goes to the file.
#include "explore/written_file.hpp"
#include "penstock/engine/element_write.hpp"
#include "rounds.hpp"

namespace penstock::explore_kit {
namespace {

TEST(write, a_writer_against_a_write_back) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 0, 1, 71);
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 3}));
}

TEST(write, the_same_word_again_while_it_is_written_back) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 72);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 0, 0, 72);
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 3}));
}

TEST(write, two_writers_of_one_page_and_a_write_back) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.writer(0, 0, 70));
    s.lane(s.writer(0, 1, 71));
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, two_write_backs_of_one_page) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.flusher()(g);
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = test::deep_preemptions}));
}

// Another's write-back may be at its end while this lane writes: what msync says is about this
// lane's bytes all the same.
TEST(write, after_msync_the_file_has_it_while_another_lane_writes_back) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 0, 1, 71);
        s.flusher()(g);
        explore::require(s.w.memory.disk[1] == 71, "msync returned, and the file does not have it");
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = test::deep_preemptions}));
}

// The same of the whole file, whose count of dirty pages must not be 0 for a moment. The page is
// dirty at the beginning.
TEST(write, after_fsync_the_file_has_it_while_another_lane_writes_back) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.prepare = [&s, before = s.prepare] {
        before();
        reinterpret_cast<std::uint64_t*>(s.w.memory.frames)[0] = 70;
        s.w.memory.dirty_bits[0] = 0xff;
        s.w.memory.frame_pages[0] = 0;
        s.w.memory.words[0] |= engine::dirty_bit;
        s.w.memory.writes[0].dirty_pages = 1;
    };
    s.lane([&](auto g) {
        s.store(g, 0, 1, 71);
        explore::require(fsync(g, s.w.fs(), s.fd) == 0, "an fsync failed");
        explore::require(s.w.memory.disk[1] == 71, "fsync returned, and the file does not have it");
    });
    s.lane(s.flusher());
    expect_sound(s.run({.preemptions = 2}));
}

// A flush that has returned without an error has brought its caller's bytes to the file, even if
// another lane is writing the page back. That holds also while that lane has cleared the dirty bit
// and not yet looked whether there are new marks.
TEST(write, what_a_flush_acknowledges_is_in_the_file) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        explore::require(msync(g, s.w.fs(), s.fd, 0, page_bytes) == 0, "an msync failed");
        explore::require(s.w.memory.disk[0] == 70,
                         "an msync returned before the bytes were in the file");
    });
    s.lane([&](auto g) {
        s.store(g, 0, 1, 71);
        explore::require(fsync(g, s.w.fs(), s.fd) == 0, "an fsync failed");
        explore::require(s.w.memory.disk[1] == 71,
                         "an fsync returned before the bytes were in the file");
    });
    expect_sound(s.run({.preemptions = 2}));
}

// A page that is written whole is not read first. A reader meanwhile gets the old bytes or the new
// ones, and never the frame before its bytes are there.
TEST(write, a_reader_of_a_page_that_is_written_whole_sees_old_or_new) {
    written_file s({.frames = 1});
    const std::uint64_t all[] = {70, 71};
    s.expect(0, 0, all[0]);
    s.expect(0, 1, all[1]);
    s.lane([&](auto g) {
        explore::require(write(g, s.w.fs(), s.fd, all, page_bytes, 0) == page_bytes,
                         "a write failed");
    });
    s.lane([&](auto g) {
        std::uint64_t seen[words_per_page] = {};
        explore::require(read(g, s.w.fs(), s.fd, seen, page_bytes, 0) == page_bytes,
                         "a read failed");
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            explore::require(seen[i] == all[i] || seen[i] == content(1, 0, i),
                             "a reader saw neither what was there nor what was written");
    });
    expect_sound(s.run({.preemptions = 3}));
}

// The second lane needs the only frame, whose page is dirty.
TEST(write, a_reader_takes_the_frame_of_a_dirty_page) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.lane(s.writer(0, 0, 70));
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), s.fd, 1, 1); });
    expect_sound(s.run({.preemptions = test::deep_preemptions}));
}

// The same of a single element, which has steps of its own.
TEST(write, a_reader_takes_the_frame_of_a_page_with_a_changed_element) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 1, 71);
    s.lane([&](auto g) {
        const auto f = engine::handle_of(s.w.view, 0);
        std::uint64_t before = 0;
        explore::require(engine::begin_change(g, s.w.view, 0) == 0, "a gate is closed");
        explore::require(
            engine::change_in_page(g, s.w.view, f, 0, true, 8,
                                   engine::put_element<std::uint64_t>{71}, before) == 0,
            "an element was not changed");
        engine::go_out(s.w.view, 0);
    });
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), s.fd, 1, 1); });
    expect_sound(s.run({.preemptions = 2}));
}

// The file ends with its first page. One lane makes it longer. The other takes the frame of the new
// page and then writes there: it finds the size, or it would take the page for one without bytes.
TEST(write, the_file_has_grown_before_its_new_page_can_be_evicted) {
    written_file s({.frames = 1});
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.file_records[0].size_bytes = page_bytes;
        s.w.memory.writes[0].stored_bytes = page_bytes;
        s.server.written_bytes = page_bytes;
        for (std::uint64_t i = 0; i < words_per_page; ++i) s.w.memory.disk[words_per_page + i] = 0;
    };
    s.expect(1, 0, 70);
    s.expect(1, 1, 71);
    s.lane(s.writer(1, 0, 70));
    s.lane([&](auto g) {
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
        s.store(g, 1, 1, 71);
    });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, writers_of_two_pages_share_one_frame) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.expect(1, 1, 71);
    s.lane(s.writer(0, 0, 70));
    s.lane(s.writer(1, 1, 71));
    expect_sound(s.run({.preemptions = 2}));
}

// Both frames are dirty when the second lane needs one: it writes a page back, and the other with
// it if no lane holds that.
TEST(write, neighbours_are_written_back_with_the_page_whose_frame_is_needed) {
    written_file s({.frames = 2}, 3);
    s.warm(0, 0);
    s.warm(1, 1);
    s.expect(0, 0, 70);
    s.expect(0, 1, 72);
    s.expect(1, 1, 71);
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        s.store(g, 1, 1, 71);
        s.store(g, 0, 1, 72);
    });
    s.lane([&](auto g) { read_and_compare(g, s.w.fs(), s.fd, 1, 2); });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, a_lane_without_a_frame_takes_over_an_offered_page) {
    short_of_frames s;
    expect_sound(s.run({.preemptions = 1}));
}

TEST(write, a_page_that_is_offered_is_written_by_one) {
    offered_neighbour s;
    expect_sound(s.run({.preemptions = 2}));
}

// A lane that draws an offered page and does not come for it: the lane that offered it gives it
// back.
TEST(write, a_page_that_is_offered_and_drawn_in_vain_is_free_again) {
    offered_neighbour s;
    s.lane([&](auto) {
        std::uint64_t word_index = 0;
        static_cast<void>(engine::next_offered(s.w.view, word_index));
    });
    s.also([&] {
        for (std::uint32_t frame = 0; frame < 2; ++frame)
            explore::require(s.w.memory.write_locks[frame] == engine::lock_free,
                             "a frame stayed locked");
    });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, pages_are_written_behind_while_others_write_them) {
    written_behind s;
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, what_cannot_be_written_stays_dirty) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.server.decide = [](const engine::ring_request& request) {
        return plan{.error = request.operation == engine::op::write ? -ENOSPC : 0};
    };
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        explore::require(fsync(g, s.w.fs(), s.fd) == -ENOSPC, "an error of the disk was not told");
    });
    s.lane(s.writer(0, 0, 70));
    expect_sound(s.run({.preemptions = 2}));
}

// The first write-back gives up waiting; the host carries it out later, with what the word was
// then. It is due after the jump of time that ends the wait, so a second write-back that does not
// wait for the first comes before it. Patience runs out once more at the end, so that it comes.
TEST(write, a_write_back_that_comes_late_does_not_undo_a_later_one) {
    written_file s({.frames = 2, .ring_slots = 4});
    s.warm(0, 0);
    s.expect(0, 0, 72);
    s.server.decide = [](const engine::ring_request& request) {
        if (request.operation == engine::op::read) return plan{.when = timing::never};
        return request.operation == engine::op::write && request.published == 1
                   ? plan{.when = timing::late, .late_ns = 1001}
                   : plan{};
    };
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
        s.store(g, 0, 0, 72);
        static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes));
        std::uint64_t got = 0;
        static_cast<void>(read(g, s.w.fs(), s.fd, &got, 8, page_bytes));
    });
    s.lane([&](auto g) { static_cast<void>(msync(g, s.w.fs(), s.fd, 0, page_bytes)); });
    expect_sound(s.run({.preemptions = 2}));
}

// The host cannot carry it out, and no group waits to hear that: the marks are there still.
TEST(write, a_write_back_that_fails_late_is_made_again) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.server.decide = [](const engine::ring_request& request) {
        return request.operation == engine::op::write && request.published == 1
                   ? plan{.when = timing::late, .error = -EIO}
                   : plan{};
    };
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        const int first = msync(g, s.w.fs(), s.fd, 0, page_bytes);
        explore::require(first == -ETIMEDOUT || first == -EIO, "an error was not told");
        explore::require(engine::write_error_of(s.w.view, 0) == first,
                         "the file does not have its error");
        if (msync(g, s.w.fs(), s.fd, 0, page_bytes) != 0) return;
        explore::require(s.w.memory.disk[0] == 70, "msync returned, and the file does not have it");
    });
    expect_sound(s.run({.preemptions = 3}));
}

// Another lane keeps the only ring slot for ever, so nothing goes to the file.
TEST(write, a_close_without_a_ring_slot_tells_that_the_file_lacks_bytes) {
    written_file s({.frames = 1, .ring_slots = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.held.references = 0;
    s.server.decide = [](const engine::ring_request& request) {
        const bool is_echo = request.operation == engine::op::ping;
        return plan{.when = is_echo ? timing::never : timing::at_once};
    };
    s.lane([&](auto g) { static_cast<void>(echo(g, s.w.view, 7)); });
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        const int code = close(g, s.w.fs(), s.fd);
        explore::require(code != 0 || s.w.memory.disk[0] == 70,
                         "closed without an error, and the file does not have it");
    });
    expect_sound(s.run({.preemptions = 2}));
}

TEST(write, two_close_a_file_that_one_has_written) {
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
    expect_sound(s.run({.preemptions = 3}));
}

// Between its write-back and the last step of its close, another opens the file, writes and closes:
// the word has one reference again.
TEST(write, one_opens_writes_and_closes_while_another_closes) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.held.references = 0;
    s.also([&] {
        explore::require(s.word_now(0) == s.w.memory.disk[0],
                         "closed by all, and the file does not have it");
    });
    s.anything_goes(0, 0);
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed"); });
    s.lane([&](auto g) {
        if (engine::add_reference(g, s.w.view, s.fd) < 0) return;
        engine::count_writers(s.w.view, 0, 1);
        s.store(g, 0, 0, 70);
        explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
    });
    expect_sound(s.run({.preemptions = 3}));
}

// The host has a writer for the file as long as a lane has it open to write: it drops the writer
// with the last close, unless it has answered an open that no lane had taken by then. By two names
// both ask the host, and the later answer may be taken first.
void two_open_write_and_close(const char* first, const char* second, int preemptions) {
    closed_file s;
    s.expect(0, 0, 70);
    s.expect(0, 1, 71);
    s.lane(s.opens_and_writes(first, 0, 70));
    s.lane(s.opens_and_writes(second, 1, 71));
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[1] == 71,
                         "closed by all, and the file does not have it");
        explore::require(s.server.settled(0), "closed by all, and the host counts a writer");
    });
    expect_sound(s.run({.preemptions = preemptions}));
}
TEST(write, two_open_a_file_by_its_name_write_it_and_close_it) {
    two_open_write_and_close("a", "a", 2);
}
TEST(write, two_open_a_file_by_two_names_write_it_and_close_it) {
    two_open_write_and_close("a", "alias", test::deep_preemptions - 1);
}

// A lane that opens the file beside a writer needs no answer of the host. It may be late: the
// writer has closed the file by then, the host has no writer any more, and a reader has it open.
TEST(write, one_opens_beside_a_writer_that_closes_and_reads) {
    closed_file s;
    s.expect(0, 0, 70);
    s.held.references = 1;
    s.lane(s.goes_and_reads());
    s.lane(s.comes_and_writes(70));
    expect_sound(s.run({.preemptions = 2}));
}

// The reader has the file open, and no lane has written it when the reader begins to close.
TEST(write, one_opens_for_writing_while_a_reader_closes) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.held.references = 0;
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.memory.writes[0] = {};
    };
    s.also([&] {
        explore::require(s.word_now(0) == s.w.memory.disk[0],
                         "closed by all, and the file does not have it");
    });
    s.anything_goes(0, 0);
    const int reading = engine::make_descriptor(0, 1);
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), reading) == 0, "a close failed"); });
    s.lane([&](auto g) {
        if (engine::add_reference(g, s.w.view, s.fd) < 0) return;
        engine::grant(s.w.view, 0);
        engine::count_writers(s.w.view, 0, 1);
        s.store(g, 0, 0, 70);
        explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
    });
    expect_sound(s.run({.preemptions = 3}));
}

}  // namespace
}  // namespace penstock::explore_kit
