// Windows: parts of files that the host has mapped for the device, so that groups can fetch their
// bytes without a request.
//
// Two words lead to a byte:
//   window word, one per file slot   0, or bits 63..48 generation of the slot, 47..0 index of the
//                                    file's first chunk + 1
//   chunk word, one per 2 MiB        0, or the address at which the device finds the chunk's first
//                                    byte
// Both lie in device memory, and only the host writes them. It fills in the chunk words first and
// then the window word. It takes memory and chunk words back only while no kernel uses the runtime,
// so a group that finds a window may read it to the end of its call. The host may clear the window
// word at any time, before it lets the file become shorter (service/windows.hpp), and may open
// another window afterwards, whose first chunk is another. So a group looks at the word again after
// it has copied a page, and asks the host for the page if the word is not the one that it used. A
// window word of an earlier life of the slot does not match the generation, and groups ignore it. A
// file that has a window is not taken down (engine/retire.hpp), so that the slot cannot reach the
// same generation again with that word. The file may be closed: that is how the next open notices
// that the file has changed.
//
// A window shows the OS page cache itself, so its bytes are as new as write(2). Cost: two loads on
// a miss, none on a hit.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/page_word.hpp"

namespace penstock::engine {

using window_word = std::uint64_t;

inline constexpr std::uint32_t window_generation_shift = 48;

constexpr PENSTOCK_HD window_word make_window_word(std::uint32_t generation,
                                                   std::uint64_t first_chunk) {
    return std::uint64_t{generation} << window_generation_shift | (first_chunk + 1);
}

// May bytes of the page come from a window past the cache? A page with another state is in the
// cache, or will be.
PENSTOCK_HD PENSTOCK_INLINE bool may_read_past(page_word seen) { return is_absent(seen); }

// Leader only. The word of the window that shows this life of the slot, or 0. One load: the host
// may change the word at any time, and what is judged has to be what is used.
PENSTOCK_HD inline window_word window_word_of(const cache_view& c, std::uint32_t slot,
                                              std::uint32_t generation) {
    if (c.windows == nullptr) return 0;
    const window_word w = load_relaxed(&c.windows[slot]);
    return w >> window_generation_shift == generation ? w : 0;
}
PENSTOCK_HD inline bool has_window(const cache_view& c, std::uint32_t slot,
                                   std::uint32_t generation) {
    return window_word_of(c, slot, generation) != 0;
}

// The address at which the device finds byte `offset` of the file and the rest of its page, or
// null.
PENSTOCK_HD PENSTOCK_INLINE const std::byte* address_in_window(const cache_view& c, window_word w,
                                                               std::uint64_t offset) {
    const std::uint64_t first = (w & ((std::uint64_t{1} << window_generation_shift) - 1)) - 1;
    const std::uint64_t chunk =
        load_reference(&c.window_chunks[first + (offset >> window_chunk_shift)]);
    if (chunk == 0) return nullptr;
    return reinterpret_cast<const std::byte*>(chunk) + (offset & (window_chunk_bytes - 1));
}

// Leader only. The same for this life of the slot. `word`: the one that led there.
PENSTOCK_HD inline const std::byte* find_in_window(const cache_view& c, std::uint32_t slot,
                                                   std::uint32_t generation, std::uint64_t offset,
                                                   window_word& word) {
    word = window_word_of(c, slot, generation);
    return word == 0 ? nullptr : address_in_window(c, word, offset);
}

// After a copy: do bytes count to which the word `used` led, where the slot has `now`? A window
// that was opened meanwhile says nothing about them.
constexpr PENSTOCK_HD bool is_same_window(window_word now, window_word used) { return now == used; }

// Leader only. Does the window show the byte? A hint.
PENSTOCK_HD inline bool is_in_window(const cache_view& c, std::uint32_t slot,
                                     std::uint32_t generation, std::uint64_t offset) {
    window_word word = 0;
    return find_in_window(c, slot, generation, offset, word) != nullptr;
}

}  // namespace penstock::engine
