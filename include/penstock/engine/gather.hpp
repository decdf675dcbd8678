// Gather: copies rows of a file, named by their numbers, to their places in an array of the caller.
//
// Rows in the cache or in windows are copied by the batch (engine/row_batch.hpp). Rows of one unit
// are too short for that: each thread copies four of them on its own. On the host rows are copied
// one after the other, as a read does it.
//
// Rows of which some page is missing: engine/missing_rows.hpp.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/element.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/missing_rows.hpp"
#include "penstock/engine/row_batch.hpp"

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

// Whole group; the same as hits_by_row for rows of one unit. Each thread has four rows in flight.
// Page words have 32-bit numbers, which saves registers.
template <typename Unit, typename Group, typename List>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t hits_by_thread(const Group& g, const cache_view& c,
                                                        const file_handle& f,
                                                        const row_geometry& rows, const List& list,
                                                        std::uint64_t begin, std::uint64_t count,
                                                        std::byte* out) {
    constexpr std::uint32_t in_flight = 4;
    const std::uint64_t at_once = std::uint64_t{in_flight} * g.size();
#pragma unroll 1
    for (std::uint64_t i = begin; i < count; i += at_once) {
        std::uint32_t word[in_flight] = {};
        page_word seen[in_flight] = {};  // 0: nothing to copy; a valid word is never 0
        std::uint32_t in_page[in_flight] = {};
        bool good = true;
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k) {
            const std::uint64_t row = i + k * g.size() + g.rank();
            if (row >= count) continue;
            const std::uint64_t index = list.indices[list.position(row)], at = rows.byte_of(index);
            const std::uint64_t word_index =
                index < rows.rows ? find_word(c, f, at >> c.page_shift) : no_word;
            word[k] = static_cast<std::uint32_t>(word_index);
            if (word_index != no_word) seen[k] = load_relaxed(&c.words[word_index]);
            in_page[k] = static_cast<std::uint32_t>(at & (c.page_bytes() - 1));
            if (!is_valid(seen[k])) seen[k] = 0, good = false;
        }
        end_load_for_read();
        Unit value[in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k)
            if (seen[k] != 0)
                value[k] = load_element<Unit>(c.frame_address(frame_of(seen[k])) + in_page[k]);
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k)
            if (seen[k] != 0)
                *reinterpret_cast<Unit*>(out + list.position(i + k * g.size() + g.rank()) *
                                                   rows.row_bytes) = value[k];
        begin_recheck_after_copy();
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k) {
            if (seen[k] == 0) continue;
            good = good && same_frame(load_relaxed(&c.words[word[k]]), seen[k]);
            touch(&c.words[word[k]], seen[k]);
        }
        if (!g.all(good)) return i;
    }
    return count;
}

#endif

// The rows of a list, as copies by the batch take them (engine/row_batch.hpp).
template <typename List>
struct file_rows {
    const cache_view& c;
    const file_handle& f;
    const row_geometry& rows;
    const List& list;
    std::byte* out;
    window_word window;

    PENSTOCK_HD PENSTOCK_INLINE std::uint64_t row_bytes() const { return rows.row_bytes; }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t parts() const {
        return parts_of_row(c.page_bytes(), rows.first_byte | rows.stride_bytes, rows.row_bytes);
    }
    PENSTOCK_HD PENSTOCK_INLINE row_source source(std::uint64_t i) const {
        const std::uint64_t index = list.indices[list.position(i)];
        return {index < rows.rows ? row_source::in_file : row_source::outside, rows.byte_of(index),
                &f};
    }
    PENSTOCK_HD PENSTOCK_INLINE window_word window_for(const file_handle&) const { return window; }
    PENSTOCK_HD PENSTOCK_INLINE std::byte* place(std::uint64_t i) const {
        return out + list.position(i) * rows.row_bytes;
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t draw_rate() const {
        return draw_rate_of(c, rows.row_bytes, c.page_bytes());
    }
};

// Whole group. Delivers the rows that are in the cache or in a window, from row `begin` of the list
// on. Returns the first row that it did not deliver, or a row before it.
template <typename Unit, call_kind Call, typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather_present(const Group& g, const cache_view& c,
                                                         const file_handle& f,
                                                         const row_geometry& rows, const List& list,
                                                         std::uint64_t begin, std::uint64_t count,
                                                         std::byte* out) {
#if PENSTOCK_ON_DEVICE
    if (rows.row_bytes == sizeof(Unit) && c.word_count >> 32 == 0)
        begin = hits_by_thread<Unit>(g, c, f, rows, list, begin, count, out);
    if (begin < count)
        begin = copy_in_batches<Unit, Call>(
            g, c, file_rows<List>{c, f, rows, list, out, window_behind_hits(c, f)}, begin, count);
    return begin;
#else
    return door<Call>(&hits_by_row<Group, List>)(g, c, f.slot, rows, list, begin, count, out);
#endif
}

// Whole group. Finishes a gather whose rows before `begin` are delivered. It is the last call of a
// gather, so the hit path need not keep anything across a call.
template <typename Unit, typename Group, typename List>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t gather_rest(const Group g, const cache_view& c,
                                                       std::uint32_t slot, const row_geometry rows,
                                                       const List list, std::uint64_t begin,
                                                       std::uint64_t count, std::byte* out) {
    const file_handle f = handle_of(g, c, slot);
    if (const std::int64_t code = shared_stop_code(g, c); code != 0) {
        const std::uint64_t index = list.indices[list.position(begin < count ? begin : count - 1)];
        if (g.is_leader())
            note_row_fault(c, code, f.slot, f.generation, rows.byte_of(index), index);
        return code;
    }
    while (begin < count) {
        begin = gather_present<Unit, call_kind::direct>(g, c, f, rows, list, begin, count, out);
        if (begin == count) break;
        std::uint64_t failed = begin;
        const std::int64_t delivered = deliver_missing(
            g, c, f, file_rows<List>{c, f, rows, list, out, 0}, begin, count, failed);
        if (delivered < 0) {
            const std::uint64_t index = list.indices[list.position(failed)];
            if (g.is_leader())
                note_row_fault(c, delivered, f.slot, f.generation, rows.byte_of(index), index);
            return delivered;
        }
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
    const std::uint64_t done = gather_present<Unit, Call>(g, c, f, rows, list, 0, count, out);
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
