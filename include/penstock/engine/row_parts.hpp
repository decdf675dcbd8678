// Rows by their parts: a part is the piece of a row in one page. A thread looks for a part, in the
// cache, in linked caches and in the window of its file, and looks again after it was copied, as
// after every copy without a pin (engine/page_word.hpp, engine/through.hpp).
//
// Rows are named by a type with
//   row_bytes()            of each row
//   parts()                the most pages that a row touches
//   source(i)              where row i lies
//   window_for(file)       the word of the file's window, or 0; in a linked cache 0, for
//                          neighbours come first
//   place(i)               where row i goes
//   low_bits()             at least the lowest four bits of all places of rows, or-ed together
//   draw_rate()            one in so many rows that come through a window draws its page
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/through_look.hpp"

namespace penstock::engine {

// Where a row lies.
struct row_source {
    enum class kind : std::uint32_t { in_file, padding, outside };
    static constexpr kind in_file = kind::in_file, padding = kind::padding, outside = kind::outside;
    kind is;
    std::uint64_t at;  // its first byte in the file
    const file_handle* file;
};

// Did this runtime cut off these bytes of the file, which had them once? The size goes down before
// a page behind the cut is touched (engine/cut.hpp). So a caller that asks after its copy,
// behind begin_recheck, does not take the zeros of a cut for bytes of the file. (What another
// program cut off cannot be loaded.)
PENSTOCK_HD PENSTOCK_INLINE bool is_cut_off(const cache_view& c, std::uint32_t slot,
                                            std::uint64_t at, std::uint64_t bytes) {
    return c.writes != nullptr && at + bytes > size_of(c, slot);
}

// The most pages that a row touches, if rows begin at places in the file that have the bits of
// `places` together.
constexpr PENSTOCK_HD std::uint32_t parts_of_row(std::uint64_t page_bytes, std::uint64_t places,
                                                 std::uint64_t row_bytes) {
    // Rows begin at multiples of `apart`, so the last place of a page is `apart` before its end.
    const std::uint64_t lowest = places & (~places + 1),
                        apart = lowest == 0 || lowest > page_bytes ? page_bytes : lowest;
    const std::uint64_t parts = (page_bytes - apart + row_bytes - 1) / page_bytes + 1;
    return parts < ~0u ? static_cast<std::uint32_t>(parts) : ~0u;
}

// The window that a first look falls back on.
PENSTOCK_HD PENSTOCK_INLINE window_word window_behind_hits(const cache_view& c,
                                                           const file_handle& f) {
    return is_linked(c) ? 0 : window_of(c, f);
}

// What a thread found of the part that it looks for.
struct found_part {
    const std::byte* from = nullptr;  // null: the part is zeros
    std::byte* to = nullptr;
    std::uint64_t word_index = no_word;
    page_word seen = 0;
    window_word window = 0;   // 0: the part is not read through a window
    std::uint32_t bytes = 0;  // 0: the row has no such part
    std::uint32_t slot = 0;
    bool is_found = true;
};

// One thread. Looks for part `number` of row `i`.
template <typename Rows>
PENSTOCK_HD PENSTOCK_INLINE found_part find_part(const cache_view& c, const Rows& rows,
                                                 std::uint64_t i, std::uint32_t number) {
    found_part out;
    const row_source source = rows.source(i);
    out.is_found = source.is != row_source::outside;
    if (!out.is_found) return out;
    const std::uint64_t in_first = c.page_bytes() - (source.at & (c.page_bytes() - 1));
    const std::uint64_t begin = number == 0 ? 0 : in_first + (number - 1) * c.page_bytes();
    if (begin >= rows.row_bytes()) return out;
    std::uint64_t end = in_first + number * c.page_bytes();
    if (end > rows.row_bytes()) end = rows.row_bytes();
    out.bytes = static_cast<std::uint32_t>(end - begin);
    out.to = rows.place(i) + begin;
    if (source.is == row_source::padding) return out;
    const std::uint64_t at = source.at + begin;
    out.slot = source.file->slot;
    out.word_index = find_word(c, *source.file, at >> c.page_shift);
    if (out.word_index != no_word) out.seen = load_relaxed(&c.words[out.word_index]);
    // On its way while the page word is looked at.
    const window_word window = rows.window_for(*source.file);
    const std::byte* const past = window != 0 ? address_in_window(c, window, at) : nullptr;
    if (is_valid(out.seen)) {
        out.from = c.frame_address(frame_of(out.seen)) + (at & (c.page_bytes() - 1));
    } else if (may_read_past(out.seen) && past != nullptr) {
        out.from = past;
        out.window = window;
    }
    out.is_found = out.from != nullptr;
    return out;
}

// What a thread of a linked cache found.
struct far_part : found_part {
    neighbour_page neighbour;  // with a frame: `from` lies there
};

// One thread. The same, in linked caches too, and then in windows.
template <typename Rows>
PENSTOCK_HD PENSTOCK_INLINE far_part find_far_part(const cache_view& c, const Rows& rows,
                                                   std::uint64_t i, std::uint32_t number) {
    far_part out{find_part(c, rows, i, number), {}};
    if (out.is_found || !may_read_past(out.seen)) return out;
    const row_source source = rows.source(i);
    if (source.is != row_source::in_file || is_granted(c, source.file->slot)) return out;
    const std::uint64_t page = (source.at >> c.page_shift) + number,
                        at = number == 0 ? source.at : page << c.page_shift;
    out.neighbour = look_at_neighbours(c, *source.file, page);
    if (out.neighbour.frame != nullptr) {
        out.from = out.neighbour.frame + (at & (c.page_bytes() - 1));
    } else if (const window_word window = window_of(c, *source.file); window != 0) {
        out.from = address_in_window(c, window, at);
        if (out.from != nullptr) out.window = window;
    }
    out.is_found = out.from != nullptr;
    return out;
}

// One thread, after the copy. Is the page of its part as it was found, and the window? Does the
// file have the row still?
template <typename Rows>
PENSTOCK_HD PENSTOCK_INLINE bool is_page_as_found(const cache_view& c, const Rows& rows,
                                                  std::uint64_t i, std::uint32_t number,
                                                  const found_part& part) {
    page_word again = 0;
    if (part.word_index != no_word) {
        again = load_relaxed(&c.words[part.word_index]);
    } else {
        const row_source source = rows.source(i);
        again = absence_of(c, *source.file, (source.at >> c.page_shift) + number);
    }
    if (c.writes != nullptr) {
        const row_source source = rows.source(i);
        if (is_cut_off(c, part.slot, source.at, rows.row_bytes())) return false;
    }
    return same_frame(again, part.seen);
}
PENSTOCK_HD PENSTOCK_INLINE bool is_window_as_found(const cache_view& c, const found_part& part) {
    return part.window == 0 || load_relaxed(&c.windows[part.slot]) == part.window;
}

}  // namespace penstock::engine
