// Turns where there is no memory to note them: none is taken, so none is waited for; and pages that
// cannot be written where there is none to keep them. Every allocation of the program goes through
// the operators of this file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "buffer/buffered_file.hpp"
#include "buffer/pool/locked_core.hpp"

namespace {

// Of this thread alone. How many succeed before one fails.
thread_local bool is_scarce = false;
thread_local std::uint64_t allocations_left = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    const bool fails = is_scarce && allocations_left-- == 0;
    return fails ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    if (void* const memory = operator new(bytes, std::nothrow)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace penstock::test {

namespace {

using buffer::action;
using buffer::frame_turns;
using buffer::move;
using buffer::nothing;
using buffer::page_id;

constexpr std::uint32_t frames = 8;

// Moves of as many frames of both sides, and a page that is written.
std::vector<action> moves_of(std::uint32_t count) {
    std::vector<action> out;
    for (std::uint32_t i = 0; i < count; ++i)
        out.push_back({move::exchange, nothing, nothing, i, i, 0, page_id{i, 0}});
    out.push_back({move::write_back, nothing, nothing, 0, nothing, 0, page_id{0, 0}});
    return out;
}

}  // namespace

TEST(frame_turns, are_all_taken_or_none) {
    const std::vector<action> moves = moves_of(frames);
    for (std::uint64_t left = 0;; ++left) {
        frame_turns turns(frames, frames, 0);
        bool threw = false;
        {
            frame_turns::taken wanted;
            allocations_left = left;
            is_scarce = true;
            try {
                turns.take(moves, wanted);
            } catch (const std::bad_alloc&) {
                threw = true;
            }
            is_scarce = false;
            if (!threw) turns.end(wanted);
        }
        for (std::uint32_t frame = 0; frame < frames; ++frame)
            EXPECT_TRUE(turns.is_idle_on_device(frame)) << left << " allocations, " << frame;
        EXPECT_FALSE(turns.is_written(page_id{0, 0})) << left;
        frame_turns::taken next;
        turns.take(moves, next);
        EXPECT_TRUE(turns.have_come(next)) << left << " allocations";
        if (!threw) break;
        ASSERT_LT(left, 100u);
    }
}

// A request of a session asks for no memory once the session is there: nothing of what its request
// has told the core can be taken back.
TEST(frame_turns, ask_for_no_memory_where_room_was_made) {
    const std::vector<action> moves = moves_of(frames - 1);
    frame_turns turns(frames, frames, 1);
    frame_turns::taken wanted;
    wanted.make_room(frames);
    allocations_left = 0;
    is_scarce = true;
    EXPECT_NO_THROW(turns.take(moves, wanted));
    is_scarce = false;
    EXPECT_TRUE(turns.have_come(wanted));
}

// The page has to go, its write fails, and one allocation after it fails, whichever: either the
// page comes to its file all the same, or every flush says that it did not.
TEST(pages_that_cannot_be_written, are_not_lost_in_silence_without_memory) {
    constexpr std::uint64_t page_bytes = 512, pages = 12;
    for (const auto policy : {buffer::policy_kind::gram, buffer::policy_kind::dedu})
        for (std::uint64_t left = 0; left < 12; ++left) {
            buffered_file f(small(5, 0, buffer::order_kind::lru), pattern(9, pages * page_bytes),
                            buffer_kind(backend::cpu, policy));
            auto session = f.all->open_session();
            const auto nine = static_cast<std::byte>(~f.on_disk()[0]);
            ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
            f.env.set({.calls = fault::call_write, .nth = 1, .error = -ENOSPC});
            allocations_left = left;
            is_scarce = true;
            std::byte byte{};
            for (std::uint64_t page = 1; page < pages && f.env.calls() == 0; ++page)
                static_cast<void>(session->read(0, page * page_bytes, &byte, 1));
            is_scarce = false;
            EXPECT_EQ(f.env.calls(), 1u) << "the page had to go";
            for (int i = 0; i < 2; ++i)
                if (const int code = session->flush(0); code == 0)
                    EXPECT_EQ(f.on_disk()[0], static_cast<std::uint8_t>(nine)) << left;
        }
}

}  // namespace penstock::test
