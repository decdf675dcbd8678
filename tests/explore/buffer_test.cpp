// The entry of a page and the latch of a frame (buffer/pool/frame_latch.hpp) under every schedule:
// a user that takes a page has that page, and has it as long as it likes.
#include <gtest/gtest.h>

#include <functional>

#include "explore/explorer.hpp"
// After it, so that its accesses are schedule points.
#include "buffer/pool/frame_latch.hpp"

namespace {

using namespace penstock;
using buffer::found_by_entry;
using buffer::use_kind;

// One frame, for which two pages come in turns. `page` and `changes` stand for its bytes.
struct shared_memory {
    buffer::page_entry entries[2];
    buffer::frame_latch latch;
    std::uint64_t page, changes, users;
};
alignas(8) shared_memory memory;

std::uint64_t load(const std::uint64_t& word) { return atomic_load<order::relaxed>(&word); }
void store(std::uint64_t& word, std::uint64_t value) { atomic_store<order::relaxed>(&word, value); }

// The frame has page 0 at first.
explore::program program_of(std::vector<std::function<void()>> fibers) {
    explore::program program;
    program.fibers = std::move(fibers);
    program.reset = [] {
        memory = shared_memory{};
        memory.latch.open();
        memory.entries[0].publish(0);
    };
    program.check = [] {};
    program.memory = reinterpret_cast<std::byte*>(&memory);
    program.memory_bytes = sizeof memory;
    return program;
}

// Page `which` is used if it is there; `times` looks.
template <bool LooksAgain = true>
std::function<void()> user(std::uint64_t which, use_kind kind, int times = 1) {
    return [which, kind, times] {
        for (int i = 0; i < times; ++i) {
            std::uint32_t frame = 0;
            if (memory.entries[which].take<LooksAgain>(&memory.latch, kind, frame) !=
                found_by_entry::taken)
                continue;
            explore::require(load(memory.page) == which, "the frame has another page");
            if (kind == use_kind::write) {
                const std::uint64_t before = load(memory.changes);
                store(memory.changes, before + 1);
                explore::require(load(memory.changes) == before + 1,
                                 "two changed the page at once");
            } else {
                const std::uint64_t before = load(memory.changes);
                explore::require(load(memory.changes) == before,
                                 "the page was changed while it was read");
            }
            explore::require(load(memory.page) == which, "the page went while it was used");
            memory.latch.end(kind);
        }
    };
}

// The manager: gives the frame from one page to the other, as often as no user has it.
std::function<void()> replacer(int times, bool careful = true) {
    return [times, careful] {
        for (std::uint64_t now = 0, i = 0; i < static_cast<std::uint64_t>(times); ++i) {
            if (careful ? !memory.entries[now].withdraw(memory.latch)
                        : (memory.latch.open(), !memory.entries[now].withdraw(memory.latch)))
                continue;
            now = 1 - now;
            store(memory.page, now);
            store(memory.changes, 0);
            memory.latch.open();
            memory.entries[now].publish(0);
        }
    };
}

explore::outcome run(std::vector<std::function<void()>> fibers) {
    return explore::explorer(program_of(std::move(fibers)), {}).run();
}

void expect_sound(const explore::outcome& out) {
    EXPECT_EQ(out.violation, "") << out.trace;
    EXPECT_TRUE(out.complete);
}

TEST(frame_latch, readers_have_their_page) {
    expect_sound(run({user(0, use_kind::read), user(1, use_kind::read), replacer(2)}));
}

TEST(frame_latch, a_reader_that_looks_twice_has_its_page) {
    expect_sound(run({user(0, use_kind::read, 2), replacer(3)}));
}

TEST(frame_latch, a_writer_is_alone) {
    expect_sound(run({user(0, use_kind::write), user(0, use_kind::read), user(0, use_kind::write),
                      replacer(1)}));
}

TEST(frame_latch, a_writer_of_the_next_page_is_alone) {
    expect_sound(run({user(1, use_kind::write), user(0, use_kind::write), replacer(2)}));
}

// Has page 0 for writing and gives it up: the frame gets page 1.
std::function<void()> quitter(bool in_order = true) {
    return [in_order] {
        std::uint32_t frame = 0;
        if (memory.entries[0].take(&memory.latch, use_kind::write, frame) != found_by_entry::taken)
            return;
        store(memory.changes, load(memory.changes) + 1);  // of no page
        if (in_order) memory.entries[0].withdraw_owned(memory.latch);
        else memory.latch.close_owned();  // and the entry still names the frame
        store(memory.page, 1);
        store(memory.changes, 0);
        memory.latch.open();
        memory.entries[1].publish(0);
    };
}

TEST(frame_latch, a_page_that_is_given_up_is_never_found) {
    expect_sound(run({quitter(), user(0, use_kind::read), user(1, use_kind::write)}));
    expect_sound(run({quitter(), user(0, use_kind::write), user(1, use_kind::read)}));
}

TEST(frame_latch, a_page_that_is_given_up_and_still_named_is_found) {
    EXPECT_EQ(run({quitter(false), user(0, use_kind::read)}).violation,
              "the frame has another page");
}

TEST(frame_latch, a_user_without_a_second_look_gets_another_page) {
    EXPECT_EQ(run({user<false>(0, use_kind::read), replacer(1)}).violation,
              "the frame has another page");
}

TEST(frame_latch, a_manager_that_does_not_ask_takes_the_page_away) {
    EXPECT_NE(run({user(0, use_kind::read), replacer(1, false)}).violation, "");
}

// The same for pages that share blocks: one slot, which two pages have in turns and which readers
// alone take; and the ownership of a page.
struct shared_pages {
    buffer::owned_entry entries[2];
    buffer::frame_latch latch;
    std::uint64_t page, changes;
    std::uint64_t posted;  // page 1 was read and is the manager's, owned
};
alignas(8) shared_pages pages;

explore::outcome run_shared(std::vector<std::function<void()>> fibers) {
    explore::program program;
    program.fibers = std::move(fibers);
    program.reset = [] {
        pages = shared_pages{};
        pages.latch.open();
        pages.entries[0].set_where(buffer::owned_entry::first_slot);
    };
    program.check = [] {};
    program.memory = reinterpret_cast<std::byte*>(&pages);
    program.memory_bytes = sizeof pages;
    return explore::explorer(std::move(program), {}).run();
}

std::function<void()> reader(std::uint64_t which, int times = 1) {
    return [which, times] {
        for (int i = 0; i < times; ++i) {
            std::uint32_t slot = 0;
            if (pages.entries[which].take(&pages.latch, slot) != found_by_entry::taken) continue;
            explore::require(load(pages.page) == which, "the slot has another page");
            explore::require(load(pages.page) == which, "the page went while it was copied");
            pages.latch.end(use_kind::read);
        }
    };
}

// The manager: it waits for the readers that copy, and no reader comes while it does.
std::function<void()> slot_giver(int times, bool waits = true) {
    return [times, waits] {
        for (std::uint64_t now = 0, i = 0; i < static_cast<std::uint64_t>(times); ++i) {
            pages.latch.begin_close();
            while (waits && !pages.latch.is_closed()) explore::explorer::current()->pause();
            pages.entries[now].set_where(buffer::owned_entry::elsewhere);
            now = 1 - now;
            store(pages.page, now);
            pages.latch.open();
            pages.entries[now].set_where(buffer::owned_entry::first_slot);
        }
    };
}

std::function<void()> owner() {
    return [] {
        std::uint32_t where = 0;
        if (!pages.entries[0].own(where)) return;
        const std::uint64_t before = load(pages.changes);
        store(pages.changes, before + 1);
        explore::require(load(pages.changes) == before + 1, "two owned the page at once");
        explore::require(pages.entries[0].is_owned(), "the manager took the page from its owner");
        pages.entries[0].disown();
    };
}

// The reader of page 1 from its file leaves it to the manager, owned, if no other reader has read
// it before (combiner::post, which is a lock).
std::function<void()> poster() {
    return [] {
        std::uint32_t where = 0;
        while (!pages.entries[1].own(where)) explore::explorer::current()->pause();
        explore::require(where != buffer::owned_entry::nowhere || load(pages.posted) == 0,
                         "a page is read twice");
        if (where == buffer::owned_entry::nowhere) store(pages.posted, 1);
        else pages.entries[1].disown();
    };
}

// And the manager disowns it when it is readable. `waits`: not before.
std::function<void()> load_maker(bool waits = true) {
    return [waits] {
        while (load(pages.posted) == 0) explore::explorer::current()->pause();
        if (!waits) pages.entries[1].disown();
        pages.latch.begin_close();
        while (!pages.latch.is_closed()) explore::explorer::current()->pause();
        pages.entries[0].set_where(buffer::owned_entry::elsewhere);
        store(pages.page, 1);
        pages.latch.open();
        pages.entries[1].set_where(buffer::owned_entry::first_slot);
        if (waits) pages.entries[1].disown();
    };
}

TEST(shared_page, that_was_left_to_the_manager_is_read_once) {
    expect_sound(run_shared({load_maker(), poster(), poster()}));
    for (const std::uint64_t which : {0, 1})
        expect_sound(run_shared({load_maker(), poster(), reader(which, 2)}));
}

TEST(shared_page, that_is_disowned_before_it_is_readable_is_read_twice) {
    EXPECT_EQ(run_shared({load_maker(false), poster(), poster()}).violation,
              "a page is read twice");
}

TEST(shared_page, readers_have_their_page) {
    expect_sound(run_shared({reader(0), reader(1), slot_giver(2)}));
}

TEST(shared_page, a_reader_that_looks_twice_has_its_page) {
    expect_sound(run_shared({reader(0, 2), slot_giver(2)}));
}

TEST(shared_page, has_one_owner_wherever_it_goes) {
    expect_sound(run_shared({owner(), owner(), slot_giver(1)}));
}

TEST(shared_page, a_manager_that_does_not_wait_takes_it_away) {
    EXPECT_NE(run_shared({reader(0), slot_giver(1, false)}).violation, "");
}

}  // namespace
