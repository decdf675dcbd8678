// Reading through: bytes of pages that are not in the cache go from a linked cache, or from a
// window of the file, straight to the caller, without claim, frame or eviction.
//
//   look    the page words are absent, the file has no writer in this runtime, and a neighbour
//           holds the page or the window shows the bytes
//   copy    neighbour's frame or window -> caller
//   check   page words and source are as they were; else the bytes do not count, and the caller
//           loads the page
//
// Why the bytes of a neighbour count: engine/neighbour.hpp. Why those of a window do
//   They are the file's: the host clears the window word before it lets the file become shorter,
//   and the memory stays until no kernel uses the runtime. So bytes copied before a look that finds
//   the same word were the file's. No reader goes back in time: programs may write to the file
//   meanwhile, and a page in the cache keeps the bytes of its load. A word that is absent in the
//   same generation at both looks was absent in between, so a page that any reader finds in the
//   cache later was loaded after the copy, from bytes at least as new. Nothing written by a kernel
//   is missed: a file with a writer in this runtime has no reads through. A writer that opens the
//   file later stores into pages of the cache, whose words then differ at the check.
//
// Admission: a page that is only read through costs the bus each time, and a page that enters the
// cache costs the bus once in full, and a frame. admits() decides (docs/decisions/replacement.md).
#pragma once

#include "penstock/base/hash.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/load.hpp"
#include "penstock/engine/through_look.hpp"

namespace penstock::engine {

// What entering costs besides its bytes on the bus, as so many bytes: a claim, a frame and an
// eviction take a GPU as long as these (bench/results/h100/2026-11-25-tables-entries.json).
inline constexpr std::uint32_t entry_bytes = 2048;

// One in so many accesses that want `wanted` bytes of a page draws it, where its entry costs
// `extra` bytes of the bus. A page enters when it is drawn for the second time, soon after the
// first. The rate keeps what entries cost at a sixteenth of what is read through, if a quarter of
// the draws are second ones. While frames were never used, pages enter more often, and at the first
// draw, for they take no other page's place.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t draw_rate_of(const cache_view& c, std::uint64_t wanted,
                                                       std::uint64_t extra) {
    if (c.admit_one_in <= 1) return 1;
    const auto part = static_cast<std::uint32_t>(wanted < c.page_bytes() ? wanted : c.page_bytes());
    if (is_filling(c)) return static_cast<std::uint32_t>(c.page_bytes()) / part;
    const std::uint64_t cost = std::uint64_t{c.admit_one_in} * (extra + entry_bytes);
    // Large pages and large rates: once in 2^31 accesses is never.
    const std::uint32_t rate =
        cost >> 32 == 0 ? static_cast<std::uint32_t>(cost) / part : std::uint32_t{1} << 31;
    return rate < (c.admit_one_in + 3) / 4 ? (c.admit_one_in + 3) / 4 : rate;
}

// One thread. True one time in so many; for `accesses` at once, of which one may let its page
// enter.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool draws(const Group& g, std::uint32_t rate,
                                       std::uint32_t accesses = 1) {
    if (rate <= accesses) return true;
#if PENSTOCK_ON_DEVICE
    const auto tick = static_cast<std::uint64_t>(clock64());  // the clock of now_ns takes longer
#else
    const std::uint64_t tick = g.now_ns();
#endif
    const std::uint64_t drawn = mix64(tick + (std::uint64_t{g.home()} << 40));
    return static_cast<std::uint32_t>(drawn >> 32) % (rate / accesses) == 0;
}

// One thread, for a page that was drawn. Was it drawn before, a while ago? The table has as many
// places as the cache has frames, and a page leaves its hash in one of them until another page
// does. Hints: it does not matter which of two stores wins.
PENSTOCK_HD PENSTOCK_INLINE bool is_drawn_again(const cache_view& c, std::uint32_t slot,
                                                std::uint64_t page) {
    if (c.drawn_pages == nullptr || c.admit_one_in <= 1 || is_filling(c)) return true;
    const std::uint64_t hash = mix64(page + (std::uint64_t{slot} << 40)) | 1;
    std::uint64_t* const place = &c.drawn_pages[(hash >> 1) & (c.drawn_places - 1)];
    if (load_relaxed(place) == hash) return true;
    store_hint(place, hash);
    return false;
}

// Leader only. Should this access let its page enter?
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool admits(const Group& g, const cache_view& c, std::uint32_t slot,
                                        std::uint64_t page, std::uint64_t wanted,
                                        std::uint64_t extra) {
    return draws(g, draw_rate_of(c, wanted, extra)) && is_drawn_again(c, slot, page);
}

// The bytes of a page that a caller does not want.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t unwanted_of_page(const cache_view& c,
                                                           std::uint64_t wanted) {
    return wanted < c.page_bytes() ? c.page_bytes() - wanted : 0;
}

// Leader only. Should this read through let its page enter?
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool admits(const Group& g, const cache_view& c, std::uint32_t slot,
                                        std::uint64_t page, const through_look& look) {
    return look.neighbour.frame != nullptr
               ? draws(g, neighbour_rate_of(c, look.length))
               : admits(g, c, slot, page, look.length, unwanted_of_page(c, look.length));
}

// Leader, or a thread that read for itself.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count_through(const Group& g, const cache_view& c,
                                               const through_look& look) {
    count(g, c, look.neighbour.frame != nullptr ? count_neighbour_reads : count_through_reads,
          look.pages);
}

// The leader's parts of a read through, before its copy and after it. Out of line: what a function
// saves (read_rest has more of it) it saves for one thread here.

struct through_bytes {
    const std::byte* from = nullptr;
    std::uint64_t length = 0;  // 0: nothing to read through
};

// Leader only. Room for a look that only the leader has: one that is a variable of the group would
// be initialised by all of its threads, in local memory.
union through_room {
    PENSTOCK_HD PENSTOCK_INLINE through_room() {}  // without a look, which begin_through makes
    through_look look;
};

// Leader only. Makes the look.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE through_bytes begin_through(const Group& g, const cache_view& c,
                                                          std::uint32_t slot, std::uint64_t wanted,
                                                          std::uint64_t offset, bool must,
                                                          through_room& room) {
    // A file without a window and without neighbours is the common case of a miss by request: one
    // trip to memory tells, on its way while the file is looked at.
    const window_word window = c.windows == nullptr ? 0 : load_relaxed(&c.windows[slot]);
    const file_handle file = handle_of(c, slot);
    if (window == 0 && !is_linked(c)) return {};
    room.look = {};
    through_look& look = room.look;
    look.file = file;
    look_through(c, look.file, offset, wanted, look);
    if (look.length > 0 && !must && admits(g, c, slot, offset >> c.page_shift, look)) {
        leave_neighbours(c, look.neighbour);
        return {};
    }
    return {look.bytes, look.length};
}

// Leader only. Do the bytes count?
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE bool end_through(const Group& g, const cache_view& c,
                                               std::uint64_t offset, const through_look& look) {
    bool good = is_source_as_seen(c, look.file, look);
    good = are_pages_as_seen(c, look.file, offset, look) && good;  // both looks under way together
    leave_neighbours(c, look.neighbour);
    if (good) count_through(g, c, look);
    else count(g, c, count_retries);
    return good;
}

// Whole group; `offset` and the `wanted` bytes behind it lie in the file of the slot. Reads through
// as many bytes from `offset` on as lie in absent pages and in one chunk of a window. Returns how
// many; 0: the caller must load the page, because it is not absent, has no window, changed
// meanwhile, or because it should enter the cache now. `must`: the page cannot enter, so do
// without.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t read_through_here(const Group& g, const cache_view& c,
                                                            std::uint32_t slot, std::byte* to,
                                                            std::uint64_t wanted,
                                                            std::uint64_t offset,
                                                            bool must = false) {
    through_room room;
    through_bytes found;
    if (g.is_leader()) found = begin_through(g, c, slot, wanted, offset, must, room);
    // It lies in one chunk of a window, or in one page.
    const std::uint32_t length = g.broadcast(static_cast<std::uint32_t>(found.length));
    if (length == 0) return 0;
    const auto* const from = reinterpret_cast<const std::byte*>(
        g.broadcast(reinterpret_cast<std::uintptr_t>(found.from)));
    end_load_for_read();  // the words were absent before a byte is read
    g.sync();             // by the leader's look, for every thread
    g.copy_through(to, from, length);
    begin_recheck_after_copy();  // the bytes were read before the words are looked at again
    g.sync();
    const bool good = g.is_leader() && end_through(g, c, offset, room.look);
    return g.broadcast(good ? length : 0);
}

// The same, out of line.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t read_through(const Group& g, const cache_view& c,
                                                         std::uint32_t slot, std::byte* to,
                                                         std::uint64_t wanted, std::uint64_t offset,
                                                         bool must = false) {
    return may_read_through(c) ? read_through_here(g, c, slot, to, wanted, offset, must) : 0;
}

// Pages that are to enter the cache together at the end of a call: each thread keeps one of them.
// An entry has fences, which wait for the bus while other groups read through; together the pages
// have them once.
struct entering_pages {
    std::uint64_t page = 0;
    std::uint32_t slot = 0;
    std::uint32_t count = 0;  // equal in all threads of the group
};

// Whole group. Lets the pages enter the cache, if that needs no wait for a frame. It may fail,
// which costs nothing but the next read. A page without a word asks the host for its leaf, which
// takes one trip; where the arena is full, asking is in vain, so only one in so many such pages
// asks.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void admit_pages(const Group g, const cache_view& c,
                                               const entering_pages pages) {
    constexpr std::uint32_t leaf_rate = 16;
    for (std::uint32_t next = 0; next < pages.count;) {
        const file_handle f = handle_of(c, g.from_rank(pages.slot, next));
        std::uint64_t list[max_pending_loads];
        std::uint32_t count = 0;
        for (; next < pages.count && count < max_pending_loads; ++next) {
            if (g.from_rank(pages.slot, next) != f.slot) break;
            const std::uint64_t page = g.from_rank(pages.page, next);
            bool has_word = true;
            if (g.is_leader() && find_word(c, f, page) == no_word)
                has_word = draws(g, leaf_rate) && ask_for_leaf(g, c, f, page, false) == 0;
            if (g.broadcast(has_word)) list[count++] = page;
        }
        wait_deadline deadline(g, c.frame_wait_ns);
        load_listed(
            g, c, f, count, [&](std::uint64_t i) { return list[i]; }, deadline,
            [](std::uint64_t, const std::byte*) {}, false);
    }
}

}  // namespace penstock::engine
