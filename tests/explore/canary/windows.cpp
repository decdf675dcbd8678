// Canaries of windows: bytes that a reader copies past the cache, and rows of tables.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// The word of a window is believed whatever life of its slot it belongs to.
#ifdef CANARY_window_of_another_life

#include "penstock/engine/window.hpp"

namespace penstock::engine {

inline const std::byte* find_in_any_window(const cache_view& c, std::uint32_t slot, std::uint32_t,
                                           std::uint64_t offset, window_word& word) {
    if (c.windows == nullptr) return nullptr;
    const window_word w = load_relaxed(&c.windows[slot]);
    return find_in_window(c, slot, static_cast<std::uint32_t>(w >> window_generation_shift), offset,
                          word);
}

}  // namespace penstock::engine

#define find_in_window find_in_any_window

#include "explore/scenario.hpp"

TEST(canary, window_of_another_life) {
    one_file s({.frames = 1});
    s.prepare = [&, before = s.prepare] {
        before();
        s.w.window_now(0, 2,
                       [](std::uint64_t page, std::uint64_t i) { return content(2, page, i); });
    };
    s.lane(s.reader(0));
    s.lane(s.reader(1));
    expect_caught(s.run(), "a read delivered wrong bytes");
}

#endif

// The word is looked at once to judge its life, and once more to follow it.
#ifdef CANARY_window_word_loaded_twice

#include "penstock/engine/window.hpp"

namespace penstock::engine {

inline const std::byte* find_by_two_looks(const cache_view& c, std::uint32_t slot,
                                          std::uint32_t generation, std::uint64_t offset,
                                          window_word& word) {
    if (!has_window(c, slot, generation)) return nullptr;
    word = load_relaxed(&c.windows[slot]);
    return address_in_window(c, word, offset);
}

}  // namespace penstock::engine

#define find_in_window find_by_two_looks

#include "explore/window_scenario.hpp"

TEST(canary, window_word_loaded_twice) {
    replaced_window s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.replace(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

#endif

// Any window at the second look does, also one that was opened since.
#ifdef CANARY_window_opened_again_unchecked

#include "penstock/engine/window.hpp"

#define is_same_window(now, used) (static_cast<void>(used), (now) != 0)

#include "explore/window_scenario.hpp"

TEST(canary, window_opened_again_unchecked) {
    replaced_window s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.replace(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

#endif

// Bytes are believed without a second look at the window word.
#ifdef CANARY_through_window_unchecked

#include "penstock/engine/through_look.hpp"

#define is_source_as_seen(c, f, look) true

#include "explore/window_scenario.hpp"

TEST(canary, through_window_unchecked) {
    read_through_file s({.frames = 1});
    s.lane(s.reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_caught(s.run({.preemptions = 3}), "a read delivered wrong bytes");
}

#endif

// Bytes are believed without a second look at the page words.
#ifdef CANARY_through_pages_unchecked

#include "penstock/engine/through_look.hpp"

#define are_pages_as_seen(c, f, offset, look) true

#include "explore/window_scenario.hpp"

TEST(canary, through_pages_unchecked) {
    read_through_file s({.frames = 1});
    s.reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

#endif

// Bytes come from the window though the page is in the cache.
#ifdef CANARY_through_valid_page

#include "penstock/engine/window.hpp"

#define may_read_past(seen) true

#include "explore/window_scenario.hpp"

TEST(canary, through_valid_page) {
    read_through_file s({.frames = 1});
    s.reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

#endif

// Rows are believed without a second look at the window word.
#ifdef CANARY_rows_window_unchecked

#include "penstock/engine/row_parts.hpp"

#define is_window_as_found(c, part) true

#include "explore/rows_scenario.hpp"

TEST(canary, rows_window_unchecked) {
    rows_of_file s({.frames = 1});
    s.lane(s.row_reader(0));
    s.lane([&](auto g) { s.close_and_cut(g); });
    expect_caught(s.run({.preemptions = 3}), "a row has wrong bytes");
}

#endif

// Rows are believed without a second look at the page words.
#ifdef CANARY_rows_page_unchecked

#include "penstock/engine/row_parts.hpp"

#define is_page_as_found(c, rows, i, number, part) \
    (static_cast<void>(rows), static_cast<void>(i), static_cast<void>(number), true)

#include "explore/rows_scenario.hpp"

TEST(canary, rows_page_unchecked) {
    rows_of_file s({.frames = 1});
    s.row_reader_while_the_page_enters();
    expect_caught(s.run({.preemptions = 3}), "a reader went back in time");
}

#endif

// A row that is loaded counts, whatever the size of the file is by then.
#ifdef CANARY_rows_cut_unchecked

#include "penstock/engine/row_parts.hpp"

#define is_cut_off(c, slot, at, bytes) \
    (static_cast<void>(slot), static_cast<void>(at), static_cast<void>(bytes), false)

#include "explore/rows_scenario.hpp"

TEST(canary, rows_cut_unchecked) {
    rows_of_file s({.frames = 1, .writes = true});
    s.row_reader_while_the_file_is_cut(page_bytes + 8, false);
    expect_caught(s.run({.preemptions = 3}), "a row has wrong bytes");
}

#endif
