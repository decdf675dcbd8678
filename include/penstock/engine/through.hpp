// Reading through: bytes of pages that are not in the cache go from a window of the file straight
// to the caller, without claim, frame or eviction.
//
//   look    the page words are absent, the file has no writer in this runtime, and its window shows
//           the bytes
//   copy    window -> caller
//   check   each page word is as it was, and so is the window word; else the bytes do not count,
//   and
//           the caller loads the page
//
// Why the bytes count
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

#include <cstdint>

#include "penstock/base/hash.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/load.hpp"
#include "penstock/engine/through_look.hpp"

namespace penstock::engine {

// Leader only. Should a page enter the cache of which a caller wants `bytes` bytes? True one time
// in so many; `rows`: for so many such rows at once, one of which may enter. A page of which the
// caller wants little must earn more reads until its bytes have paid the bus: the rate keeps them
// at a sixteenth of what is read through. While frames were never used, pages enter more often, for
// they take no other page's place.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool admits(const Group& g, const cache_view& c, std::uint64_t bytes,
                                        std::uint32_t rows = 1) {
    if (c.admit_one_in <= 1) return true;
    std::uint32_t parts = 1;
    if (bytes < c.page_bytes()) parts = static_cast<std::uint32_t>(c.page_bytes() / bytes);
    std::uint32_t rate = parts;
    if (!is_filling(c)) rate = c.admit_one_in * (parts > 1 ? 4 * (parts - 1) : 1);
    if (rate <= rows) return true;
    const std::uint64_t drawn = mix64(g.now_ns() + (std::uint64_t{g.home()} << 40));
    return static_cast<std::uint32_t>(drawn >> 32) % (rate / rows) == 0;
}

// Whole group; `offset` and the `wanted` bytes behind it lie in the file. Reads through as many
// bytes from `offset` on as lie in absent pages and in one chunk of a window. Returns how many; 0:
// the caller must load the page, because it is not absent, has no window, changed meanwhile, or
// because it should enter the cache now. `must`: the page cannot enter, so do without.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t read_through(const Group& g, const cache_view& c,
                                                         const file_handle& f, std::byte* to,
                                                         std::uint64_t wanted, std::uint64_t offset,
                                                         bool must = false) {
    if (c.windows == nullptr) return 0;
    through_look look;
    if (g.is_leader()) {
        look_through(c, f, offset, wanted, look);
        if (look.length > 0 && !must && admits(g, c, look.length)) look.length = 0;
    }
    const std::uint64_t length = g.broadcast(look.length);
    if (length == 0) return 0;
    const auto* const from = reinterpret_cast<const std::byte*>(
        g.broadcast(reinterpret_cast<std::uintptr_t>(look.bytes)));
    end_load_for_read();  // the words were absent before a byte is read
    g.sync();             // by the leader's look, for every thread
    g.copy_through(to, from, length);
    begin_recheck();  // the bytes were read before the words are looked at again; by every thread
    g.sync();
    bool good = false;
    if (g.is_leader()) {
        good = is_window_as_seen(c, f, look);
        good = are_pages_as_seen(c, f, offset, look) && good;  // both looks under way together
        if (good) count(g, c, count_through_reads, look.pages);
        else count(g, c, count_retries);
    }
    return g.broadcast(good ? length : 0);
}

// One thread, for a row or an element that it read through.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count_through(const Group& g, const cache_view& c) {
    count(g, c, count_through_reads);
}

// Whole group. Lets a page enter the cache, if that needs no wait for a frame. It may fail, which
// costs nothing but the next read.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void admit_page(const Group& g, const cache_view& c,
                                              const file_handle& f, std::uint64_t page) {
    wait_deadline deadline(g, c.frame_wait_ns);
    pending_load load;
    if (begin_load(g, c, f, page, false, deadline, load) != 1) return;
    if (fetch_load(g, c, f, load) == 0) publish_load(g, c, f, load, false);
}

}  // namespace penstock::engine
