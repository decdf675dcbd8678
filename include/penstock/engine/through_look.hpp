// The looks of a read past the cache, through a window or from a neighbour: before the copy and
// after it (engine/through.hpp and engine/neighbour.hpp have what they prove).
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/neighbour.hpp"
#include "penstock/engine/page_table.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::engine {

// The pages that one copy may span; a trip to memory for all of their words.
inline constexpr std::uint32_t most_through_pages = 8;

// Is there anything but the file that pages could be read from past the cache?
PENSTOCK_HD PENSTOCK_INLINE bool may_read_through(const cache_view& c) {
    return c.windows != nullptr || is_linked(c);
}

// Leader only. The word of the window that shows this life of the file, or 0.
PENSTOCK_HD PENSTOCK_INLINE window_word window_of(const cache_view& c, const file_handle& f) {
    if (c.windows == nullptr) return 0;
    const window_word w = load_relaxed(&c.windows[f.slot]);
    return is_granted(c, f.slot) || w >> window_generation_shift != f.generation ? 0 : w;
}

// Did a page stay absent since its word was `seen`? A page without a leaf has no word, and 0 stands
// for it.
PENSTOCK_HD PENSTOCK_INLINE page_word absence_of(const cache_view& c, const file_handle& f,
                                                 std::uint64_t page) {
    const std::uint64_t word_index = find_word(c, f, page);
    return word_index == no_word ? 0 : load_relaxed(&c.words[word_index]);
}

// Of `pages` pages from `page` on, those whose words lie side by side in the arena: one look finds
// the place of all. The file is not being written, so it has not grown.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t pages_side_by_side(const cache_view& c,
                                                             const file_handle& f,
                                                             std::uint64_t page,
                                                             std::uint64_t pages) {
    const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift,
                        in_leaf = leaf_pages - (page & (leaf_pages - 1)),
                        most = f.two_level && in_leaf < most_through_pages ? in_leaf
                                                                           : most_through_pages;
    return static_cast<std::uint32_t>(pages < most ? pages : most);
}

// Their words, as absence_of gives each; all loads are under way together.
PENSTOCK_HD PENSTOCK_INLINE void look_at_words(const cache_view& c, const file_handle& f,
                                               std::uint64_t page, std::uint32_t pages,
                                               page_word (&seen)[most_through_pages]) {
    const std::uint64_t index = find_word(c, f, page);
    PENSTOCK_UNROLL
    for (std::uint32_t i = 0; i < most_through_pages; ++i)
        seen[i] = i < pages && index != no_word ? load_relaxed(&c.words[index + i]) : 0;
}

// What the leader found; the other threads need `bytes` and `length` only.
struct through_look {
    file_handle file;  // for the check, where that is another function
    page_word seen[most_through_pages];
    window_word window = 0;
    neighbour_page neighbour;  // with a frame: the bytes are there, and not in a window
    std::uint32_t pages = 0;
    const std::byte* bytes = nullptr;
    std::uint64_t length = 0;  // 0: nothing to read through
};

// Leader only, with a window and the words of `pages` pages. Takes the bytes of those that are
// absent and lie in one chunk.
PENSTOCK_HD PENSTOCK_INLINE void look_in_window(const cache_view& c, std::uint64_t offset,
                                                std::uint64_t wanted, std::uint32_t pages,
                                                through_look& out) {
    bool run = true;
    PENSTOCK_UNROLL
    for (std::uint32_t i = 0; i < most_through_pages; ++i) {
        run = run && i < pages && may_read_past(out.seen[i]);
        out.pages += run ? 1 : 0;
    }
    out.bytes = address_in_window(c, out.window, offset);
    if (out.bytes == nullptr) return;
    const std::uint64_t in_chunk = window_chunk_bytes - (offset & (window_chunk_bytes - 1));
    std::uint64_t length = (((offset >> c.page_shift) + out.pages) << c.page_shift) - offset;
    if (length > in_chunk) length = in_chunk;
    out.length = length < wanted ? length : wanted;
}

// Leader only. Takes the bytes from a neighbour at that distance, if it has the first page.
PENSTOCK_HD PENSTOCK_NOINLINE inline bool look_next_door(const cache_view& c, const file_handle& f,
                                                         std::uint64_t offset, std::uint64_t wanted,
                                                         std::uint32_t nearest,
                                                         std::uint32_t farthest,
                                                         through_look& out) {
    out.neighbour = look_at_neighbours(c, f, offset >> c.page_shift, nearest, farthest);
    if (out.neighbour.frame == nullptr) return false;
    const std::uint64_t in_page = offset & (c.page_bytes() - 1), left = c.page_bytes() - in_page;
    out.bytes = out.neighbour.frame + in_page;
    out.length = left < wanted ? left : wanted;
    out.pages = 1;
    return true;
}

// Leader only. Looks for the bytes from `offset` on, up to `wanted` of them.
PENSTOCK_HD PENSTOCK_INLINE void look_through(const cache_view& c, const file_handle& f,
                                              std::uint64_t offset, std::uint64_t wanted,
                                              through_look& out) {
    const std::uint64_t first = offset >> c.page_shift,
                        last = (offset + wanted - 1) >> c.page_shift;
    out.window = window_of(c, f);
    const bool linked = is_linked(c) && !is_granted(c, f.slot);
    if (linked) {
        // The first page alone: a neighbour serves one at a time.
        out.seen[0] = absence_of(c, f, first);
        if (stop_code(c) != 0 || !may_read_past(out.seen[0]) ||
            look_next_door(c, f, offset, wanted, same_memory, by_nvlink, out))
            return;
    }
    // A file that is being written may have grown, and the words of such pages lie elsewhere.
    if (out.window == 0 && !linked) return;
    const std::uint32_t pages = pages_side_by_side(c, f, first, last - first + 1);
    look_at_words(c, f, first, pages, out.seen);
    if (stop_code(c) != 0 || !may_read_past(out.seen[0])) return;
    if (out.window != 0) look_in_window(c, offset, wanted, pages, out);
    // Without a look at the tier: a load from there fetches all of the page and takes a frame.
    if (linked && out.length == 0) look_next_door(c, f, offset, wanted, by_bus, by_bus, out);
}

// Leader only, after the copy.
PENSTOCK_HD PENSTOCK_INLINE bool is_source_as_seen(const cache_view& c, const file_handle& f,
                                                   const through_look& look) {
    return look.neighbour.frame != nullptr ? is_as_seen(c, f, look.neighbour)
                                           : load_relaxed(&c.windows[f.slot]) == look.window;
}
PENSTOCK_HD PENSTOCK_INLINE bool are_pages_as_seen(const cache_view& c, const file_handle& f,
                                                   std::uint64_t offset, const through_look& look) {
    page_word again[most_through_pages];
    look_at_words(c, f, offset >> c.page_shift, look.pages, again);
    bool same = true;
    PENSTOCK_UNROLL
    for (std::uint32_t i = 0; i < most_through_pages; ++i)
        same = (i >= look.pages || same_frame(again[i], look.seen[i])) && same;
    return same;
}

}  // namespace penstock::engine
