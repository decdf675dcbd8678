// Gather: copies rows of a file, named by their numbers, to their places in an array of the caller.
//
// Rows in the cache are copied without a pin, as a read does it: look at the page word, copy, look
// again. On a GPU short rows go several at a time: the threads of a group share out the rows of a
// batch in units of up to 16 bytes, so that word, bytes and second look of four units are in flight
// together in every thread. A unit never straddles a page, so rows may.
//
// If a page is missing, the group takes a window of parts (a part is the piece of one row in one
// page). It delivers the parts that are there and loads the others: each page once for all its
// parts, and up to max_pending_loads pages together. Each round delivers or fails at least the
// first part that is open, so the loop ends as every read does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "penstock/engine/element.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/row_units.hpp"

namespace penstock::engine {

// Where the rows are: row r has row_bytes bytes from first_byte + r * stride_bytes on. Neither
// stride_bytes nor row_bytes is 0.
struct row_geometry {
    std::uint64_t rows;  // that lie whole in the file
    std::uint64_t first_byte, stride_bytes, row_bytes;

    constexpr PENSTOCK_HD std::uint64_t byte_of(std::uint64_t row) const {
        return first_byte + row * stride_bytes;
    }
};

constexpr PENSTOCK_HD row_geometry rows_of(std::uint64_t size_bytes, std::uint64_t first_byte,
                                           std::uint64_t stride_bytes, std::uint64_t row_bytes) {
    const bool any = first_byte <= size_bytes && row_bytes <= size_bytes - first_byte;
    return {any ? (size_bytes - first_byte - row_bytes) / stride_bytes + 1 : 0, first_byte,
            stride_bytes, row_bytes};
}

// The list of wanted rows: the i-th row to be delivered is at position(i) of the list, and of the
// output too.
struct listed_rows {
    const std::uint64_t* indices;
    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t position(std::uint64_t i) const { return i; }
};

// The same, delivered in another order: a permutation of the positions.
struct ordered_rows {
    const std::uint64_t* indices;
    const std::uint32_t* order;
    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t position(std::uint64_t i) const { return order[i]; }
};

// How far a delivery has come: rows before `row` are done, and the first in_row bytes of `row`.
struct row_place {
    std::uint64_t row, in_row;
};

inline constexpr std::uint32_t window_parts = 16;

// Whole group. Calls visit(k, index, part, to) for up to window_parts parts from `place` on, and
// stops before row `end` and before an index out of range. Returns how many parts it visited;
// `place` is then behind them.
template <typename List, typename Visit>
PENSTOCK_HD std::uint32_t walk_parts(const cache_view& c, const row_geometry& rows,
                                     const List& list, std::uint64_t end, row_place& place,
                                     std::byte* out, const Visit& visit) {
    std::uint32_t k = 0;
    while (k < window_parts && place.row < end) {
        const std::uint64_t position = list.position(place.row), index = list.indices[position];
        if (index >= rows.rows) break;
        const page_part part =
            part_at(c, rows.byte_of(index) + place.in_row, rows.row_bytes - place.in_row);
        visit(k++, index, part, out + position * rows.row_bytes + place.in_row);
        place.in_row += part.bytes;
        if (place.in_row == rows.row_bytes) place = {place.row + 1, 0};
    }
    return k;
}

// A list of pages that are loaded together; equal in all threads of the group.
struct page_list {
    std::uint64_t page[max_pending_loads];
    std::uint32_t count = 0;

    PENSTOCK_HD bool has(std::uint64_t wanted) const {
        for (std::uint32_t i = 0; i < count; ++i)
            if (page[i] == wanted) return true;
        return false;
    }
};

// Whole group. Delivers the window of parts at `place`, before row `end`, and moves `place` behind
// it. Returns 0, or a negative errno that the fault record has too; then some of the parts may be
// delivered.
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t gather_window(const Group& g, const cache_view& c,
                                                         const file_handle& f,
                                                         const row_geometry& rows, const List& list,
                                                         std::uint64_t end, row_place& place,
                                                         std::byte* out) {
    std::uint32_t open = (1u << window_parts) - 1;  // a bit for each part that is not delivered
    for (;;) {
        page_list missing;
        std::uint64_t first_index = 0;
        row_place until = place;
        const std::uint32_t parts = walk_parts(
            c, rows, list, end, until, out,
            [&](std::uint32_t k, std::uint64_t index, const page_part& part, std::byte* to) {
                if ((open >> k & 1) == 0 || missing.has(part.page)) return;
                if (try_read_part(g, c, f, part, to) ||
                    read_through(g, c, f, to, part.bytes,
                                 (part.page << c.page_shift) + part.in_page) == part.bytes) {
                    open &= ~(1u << k);
                } else if (missing.count < max_pending_loads) {
                    if (missing.count == 0) first_index = index;
                    missing.page[missing.count++] = part.page;
                }
            });
        if (missing.count == 0 && parts > 0) {
            place = until;
            return 0;
        }
        const auto deliver = [&](std::uint64_t page, const std::byte* frame) {
            row_place again = place;
            walk_parts(c, rows, list, end, again, out,
                       [&](std::uint32_t k, std::uint64_t, const page_part& part, std::byte* to) {
                           if ((open >> k & 1) == 0 || part.page != page) return;
                           g.copy_out(to, frame + part.in_page, part.bytes);
                           open &= ~(1u << k);
                       });
        };
        std::int64_t code = -ERANGE;  // not one part: the index at `place` is outside
        if (parts == 0) {
            first_index = list.indices[list.position(place.row)];
        } else {
            wait_deadline deadline(g, c.frame_wait_ns);
            code = load_listed(
                g, c, f, missing.count, [&](std::uint64_t i) { return missing.page[i]; }, deadline,
                deliver);
            if (code == 0) {
                pinned_page page{};  // another group has the first one
                code = pin_page(g, c, f, missing.page[0], deadline, page);
                if (code == 0) {
                    deliver(missing.page[0], c.frame_address(page.frame));
                    g.sync();  // every thread has copied before the leader unpins
                    if (g.is_leader()) unpin(&c.words[page.word_index]);
                }
            }
        }
        if (code < 0) {
            if (g.is_leader())
                note_row_fault(c, code, f.slot, f.generation, rows.byte_of(first_index),
                               first_index);
            return code;
        }
    }
}

// Whole group, for a row `first` of the list of which some page was not in the cache a moment ago,
// or whose index is out of range. Delivers this row and some that follow. Returns how many, or a
// negative errno.
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t gather_missing(const Group& g, const cache_view& c,
                                                          const file_handle& f,
                                                          const row_geometry& rows,
                                                          const List& list, std::uint64_t first,
                                                          std::uint64_t count, std::byte* out) {
    row_place place{first, 0};
    std::uint64_t end = count;
    do {
        if (const std::int64_t code = gather_window(g, c, f, rows, list, end, place, out);
            code != 0)
            return code;
        end = place.row + 1;  // only the rest of a row that the window cut in two
    } while (place.in_row != 0);
    return static_cast<std::int64_t>(place.row - first);
}

// Whole group, row by row. Delivers the rows in the cache from row `begin` of the list on. Returns
// the first row that it did not deliver.
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t hits_by_row(const Group g, const cache_view& c,
                                                        std::uint32_t slot, const row_geometry rows,
                                                        const List list, std::uint64_t begin,
                                                        std::uint64_t count, std::byte* out) {
    const file_handle f = handle_of(c, slot);
    for (std::uint64_t i = begin; i < count; ++i) {
        const std::uint64_t position = list.position(i), index = list.indices[position];
        if (index >= rows.rows) return i;
        const std::uint64_t from = rows.byte_of(index);
        std::byte* const to = out + position * rows.row_bytes;
        for (std::uint64_t done = 0; done < rows.row_bytes;) {
            const page_part part = part_at(c, from + done, rows.row_bytes - done);
            if (!try_read_part(g, c, f, part, to + done)) return i;
            done += part.bytes;
        }
    }
    return count;
}

#if defined(__CUDACC__)

// Whole group; the same as hits_by_row for rows of at most PerThread units a thread. `out` and all
// of the geometry are multiples of the unit; page words have 32-bit numbers, which saves the
// registers that a fourth unit needs.
template <typename Unit, std::uint32_t PerThread, typename Group, typename List>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t hits_by_unit(const Group& g, const cache_view& c,
                                                      const file_handle& f,
                                                      const row_geometry& rows, const List& list,
                                                      std::uint64_t begin, std::uint64_t count,
                                                      std::byte* out) {
    const unit_shares<PerThread> shares(g.size(), g.rank(),
                                        static_cast<std::uint32_t>(rows.row_bytes / sizeof(Unit)));
#pragma unroll 1
    for (std::uint64_t i = begin; i < count; i += shares.rows()) {
        std::uint32_t word[units_in_flight] = {};
        page_word seen[units_in_flight] = {};  // 0: nothing to copy; a valid word is never 0
        std::uint32_t in_page[units_in_flight] = {};
        bool good = true;
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if (!shares.has(k) || shares.row(k) >= count - i) continue;
            const std::uint64_t index = list.indices[list.position(i + shares.row(k))];
            const std::uint64_t at = rows.byte_of(index) + shares.unit(k) * sizeof(Unit);
            const std::uint64_t word_index =
                index < rows.rows ? find_word(c, f, at >> c.page_shift) : no_word;
            word[k] = static_cast<std::uint32_t>(word_index);
            if (word_index != no_word) seen[k] = load_relaxed(&c.words[word_index]);
            in_page[k] = static_cast<std::uint32_t>(at & (c.page_bytes() - 1));
            if (!is_valid(seen[k])) seen[k] = 0, good = false;
        }
        end_load_for_read();
        Unit value[units_in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if (seen[k] != 0)
                value[k] = load_element<Unit>(c.frame_address(frame_of(seen[k])) + in_page[k]);
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if (seen[k] != 0)
                *reinterpret_cast<Unit*>(out + list.position(i + shares.row(k)) * rows.row_bytes +
                                         shares.unit(k) * sizeof(Unit)) = value[k];
        begin_recheck();
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if (seen[k] == 0) continue;
            good = good && same_frame(load_relaxed(&c.words[word[k]]), seen[k]);
            if (shares.unit(k) == 0) touch(&c.words[word[k]], seen[k]);
        }
        if (!g.all(good)) return i;
    }
    return count;
}

#endif

// How a function calls the next one. Code that is inline in the user's kernel calls by address
// (base/macros.hpp); other code calls directly. A function that is called by address may not
// call another function by address: the compiler would take that for a circle, and would not know
// how much stack the kernel needs.
enum class call_kind { direct, by_address };

template <call_kind Call, typename Function>
PENSTOCK_HD PENSTOCK_INLINE Function* door(Function* function) {
    if constexpr (Call == call_kind::by_address) return by_address(function);
    else return function;
}

// Whole group. Delivers the rows in the cache from row `begin` of the list on. Returns the first
// row that it did not deliver, or a row before it.
template <typename Unit, call_kind Call, typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather_hits(const Group& g, const cache_view& c,
                                                      const file_handle& f,
                                                      const row_geometry& rows, const List& list,
                                                      std::uint64_t begin, std::uint64_t count,
                                                      std::byte* out) {
#if PENSTOCK_ON_DEVICE
    const std::uint64_t units =
        c.word_count >> 32 == 0 ? rows.row_bytes / sizeof(Unit) : ~std::uint64_t{0};
    if (units <= g.size()) return hits_by_unit<Unit, 1>(g, c, f, rows, list, begin, count, out);
    if (units <= 4 * g.size()) return hits_by_unit<Unit, 4>(g, c, f, rows, list, begin, count, out);
#endif
    return door<Call>(&hits_by_row<Group, List>)(g, c, f.slot, rows, list, begin, count, out);
}

// The rows of a list, as copies by unit take them (engine/row_units.hpp).
template <typename List>
struct file_rows {
    const cache_view& c;
    const file_handle& f;
    const row_geometry& rows;
    const List& list;
    std::byte* out;
    window_word window;

    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t row_bytes() const { return rows.row_bytes; }
    PENSTOCK_HD PENSTOCK_INLINE row_source source(std::uint64_t i) const {
        const std::uint64_t index = list.indices[list.position(i)];
        return {index < rows.rows ? row_source::in_file : row_source::outside, rows.byte_of(index),
                &f};
    }
    PENSTOCK_HD PENSTOCK_INLINE window_word window_for(const file_handle&) const { return window; }
    PENSTOCK_HD PENSTOCK_INLINE std::byte* place(std::uint64_t i) const {
        return out + list.position(i) * rows.row_bytes;
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t entry_rate() const {
        return entry_rate_of(c, rows.row_bytes, c.page_bytes());
    }
};

// Whole group. Delivers rows that are in the cache or in a window of the file, from row `begin` of
// the list on. Returns the first row that it did not deliver, or a row before it.
template <typename Unit, typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather_present(const Group& g, const cache_view& c,
                                                         const file_handle& f,
                                                         const row_geometry& rows, const List& list,
                                                         std::uint64_t begin, std::uint64_t count,
                                                         std::byte* out) {
#if PENSTOCK_ON_DEVICE
    const window_word window = g.broadcast(g.is_leader() ? window_of(c, f) : 0);
    if (window != 0)
        return copy_rows_by_unit<Unit, true>(g, c, file_rows<List>{c, f, rows, list, out, window},
                                             begin, count);
#endif
    return gather_hits<Unit, call_kind::direct>(g, c, f, rows, list, begin, count, out);
}

// Whole group. Finishes a gather whose rows before `begin` are delivered. It is the last call of a
// gather, so the hit path need not keep anything across a call.
template <typename Unit, typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t gather_rest(const Group g, const cache_view& c,
                                                       std::uint32_t slot, const row_geometry rows,
                                                       const List list, std::uint64_t begin,
                                                       std::uint64_t count, std::byte* out) {
    const file_handle f = handle_of(c, slot);
    if (const std::int64_t code = shared_stop_code(g, c); code != 0) {
        const std::uint64_t index = list.indices[list.position(begin < count ? begin : count - 1)];
        if (g.is_leader())
            note_row_fault(c, code, f.slot, f.generation, rows.byte_of(index), index);
        return code;
    }
    while (begin < count) {
        begin = gather_present<Unit>(g, c, f, rows, list, begin, count, out);
        if (begin == count) break;
        const std::int64_t delivered = gather_missing(g, c, f, rows, list, begin, count, out);
        if (delivered < 0) return delivered;
        begin += static_cast<std::uint64_t>(delivered);
    }
    return static_cast<std::int64_t>(count);
}

// Whole group. Delivers the rows of the list, in units that divide `out` and all of the geometry.
// Returns `count`, or a negative errno that the fault record has too; then any of the rows may be
// delivered. Only the places of the rows in `out` are written.
template <typename Unit, call_kind Call, typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t gather_in_units(const Group& g, const cache_view& c,
                                                         const file_handle& f,
                                                         const row_geometry& rows, const List& list,
                                                         std::uint64_t count, std::byte* out) {
    const std::uint64_t done = gather_hits<Unit, Call>(g, c, f, rows, list, 0, count, out);
    if (g.all(done == count && !(g.is_leader() && stop_code(c) != 0)))
        return static_cast<std::int64_t>(count);
    return door<Call>(&gather_rest<Unit, Group, List>)(g, c, f.slot, rows, list, done, count, out);
}

// Whole group. The same, for rows whose places are not all multiples of 16 bytes.
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t gather_unaligned(const Group g, const cache_view& c,
                                                            std::uint32_t slot,
                                                            const row_geometry rows,
                                                            const List list, std::uint64_t count,
                                                            std::byte* out) {
    const file_handle f = handle_of(c, slot);
    const std::uint64_t low = reinterpret_cast<std::uintptr_t>(out) | rows.first_byte |
                              rows.stride_bytes | rows.row_bytes;
    if ((low & 7) == 0)
        return gather_in_units<unit_for<8>, call_kind::direct>(g, c, f, rows, list, count, out);
    if ((low & 3) == 0)
        return gather_in_units<unit_for<4>, call_kind::direct>(g, c, f, rows, list, count, out);
    return gather_in_units<unit_for<1>, call_kind::direct>(g, c, f, rows, list, count, out);
}

// Whole group. The same, for rows anywhere.
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t gather_rows(const Group& g, const cache_view& c,
                                                     const file_handle& f, const row_geometry& rows,
                                                     const List& list, std::uint64_t count,
                                                     std::byte* out) {
#if PENSTOCK_ON_DEVICE
    const std::uint64_t low = reinterpret_cast<std::uintptr_t>(out) | rows.first_byte |
                              rows.stride_bytes | rows.row_bytes;
    if ((low & 15) != 0)
        return by_address(&gather_unaligned<Group, List>)(g, c, f.slot, rows, list, count, out);
#endif
    return gather_in_units<unit_for<16>, call_kind::by_address>(g, c, f, rows, list, count, out);
}

}  // namespace penstock::engine
