// Copies of short rows by unit: the threads of a group share out the rows of a batch in units of up
// to 16 bytes, so that word, bytes and second look of four units are in flight together in every
// thread. A unit never straddles a page, so rows may.
//
// A unit comes from the cache, as a hit does, or through a window (engine/through.hpp), with the
// same looks. Rows are named by a type with
//   row_bytes()            of each row
//   source(i)              where row i lies
//   window_for(file)       the word of the file's window, or 0; the same in one call
//   place(i)               where row i goes
//   entry_rate()           one in so many rows that come through a window lets its page enter
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "penstock/engine/element.hpp"
#include "penstock/engine/through.hpp"

namespace penstock::engine {

// Where a row lies.
struct row_source {
    enum class kind : std::uint32_t { in_file, padding, outside };
    static constexpr kind in_file = kind::in_file, padding = kind::padding, outside = kind::outside;
    kind is;
    std::uint64_t at;  // its first byte in the file
    const file_handle* file;
};

// A unit is the most that one access can load. On the host rows are copied whole, so nothing
// depends on it.
template <std::size_t Bytes>
using unit_for = std::conditional_t<
    Bytes == 16, two_words,
    std::conditional_t<
        Bytes == 8, std::uint64_t,
        std::conditional_t<Bytes == 4, std::uint32_t,
                           std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>>;

// How many units each thread has in flight: as many as 64 registers have room for.
inline constexpr std::uint32_t units_in_flight = 4;

// How the threads of a group share out a batch of short rows: `team` threads to a row, each with
// PerThread of its units.
template <std::uint32_t PerThread>
struct unit_shares {
    static constexpr std::uint32_t rows_in_flight = units_in_flight / PerThread;
    std::uint32_t team, teams, my_team, my_unit, my_units;

    PENSTOCK_HD PENSTOCK_INLINE unit_shares(std::uint32_t size, std::uint32_t rank,
                                            std::uint32_t units)
        : team((units + PerThread - 1) / PerThread),
          teams(size / team),
          my_team(rank / team),
          my_unit(rank % team) {
        my_units = my_team < teams ? (units - my_unit + team - 1) / team : 0;
    }

    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t rows() const { return teams * rows_in_flight; }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t row(std::uint32_t k) const {
        return my_team + k / PerThread * teams;
    }
    PENSTOCK_HD PENSTOCK_INLINE std::uint32_t unit(std::uint32_t k) const {
        return my_unit + k % PerThread * team;
    }
    PENSTOCK_HD PENSTOCK_INLINE bool has(std::uint32_t k) const { return k % PerThread < my_units; }
};

#if defined(__CUDACC__)

// Loads of a frame at the scope of the device, and of a frame or a window at that of the system.
template <typename Unit, bool Windows>
PENSTOCK_D PENSTOCK_INLINE Unit load_unit(const std::byte* from) {
    if constexpr (Windows) return load_shared_element<Unit>(from);
    else return load_element<Unit>(from);
}

// The units of a batch that a thread has in flight, from the cache, or with `Windows` from windows
// too. Page words have 32-bit numbers, which saves the registers that a fourth unit needs.
template <typename Unit, std::uint32_t PerThread, bool Windows>
struct unit_batch {
    static constexpr std::uint32_t leafless = ~0u;
    std::uint32_t word[units_in_flight] = {}, in_page[units_in_flight] = {};
    page_word seen[units_in_flight] = {};
    const std::byte *past_from[units_in_flight] = {}, *from[units_in_flight] = {};
    window_word window[units_in_flight] = {};
    // A bit for each unit: it is stored; it comes from a frame or a window; from a window.
    std::uint32_t stored = 0, loaded = 0, past = 0;
    bool good = true;

    // Looks at page words and windows, all under way together.
    template <typename Rows>
    PENSTOCK_D PENSTOCK_INLINE void look(const cache_view& c, const Rows& rows,
                                         const unit_shares<PerThread>& shares, std::uint64_t first,
                                         std::uint64_t count) {
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if (!shares.has(k) || shares.row(k) >= count - first) continue;
            const row_source source = rows.source(first + shares.row(k));
            if (source.is == row_source::outside) good = false;
            else stored |= 1u << k;
            if (source.is != row_source::in_file) continue;
            loaded |= 1u << k;
            const std::uint64_t at = source.at + shares.unit(k) * sizeof(Unit);
            const std::uint64_t word_index = find_word(c, *source.file, at >> c.page_shift);
            word[k] = word_index == no_word ? leafless : static_cast<std::uint32_t>(word_index);
            if (word_index != no_word) seen[k] = load_relaxed(&c.words[word_index]);
            in_page[k] = static_cast<std::uint32_t>(at & (c.page_bytes() - 1));
            if constexpr (Windows) {
                window[k] = rows.window_for(*source.file);
                if (window[k] != 0) past_from[k] = address_in_window(c, window[k], at);
            }
        }
    }

    // Copies what can be had.
    template <typename Rows>
    PENSTOCK_D PENSTOCK_INLINE void copy(const cache_view& c, const Rows& rows,
                                         const unit_shares<PerThread>& shares,
                                         std::uint64_t first) {
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if ((loaded >> k & 1) == 0) continue;
            if (is_valid(seen[k])) {
                from[k] = c.frame_address(frame_of(seen[k])) + in_page[k];
            } else if (Windows && may_read_past(seen[k])) {
                past |= 1u << k;
                from[k] = past_from[k];
            }
            if (from[k] == nullptr) good = false;
        }
        end_load_for_read();
        Unit value[units_in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if (from[k] != nullptr) value[k] = load_unit<Unit, Windows>(from[k]);
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if ((stored >> k & 1) != 0)
                *reinterpret_cast<Unit*>(rows.place(first + shares.row(k)) +
                                         shares.unit(k) * sizeof(Unit)) = value[k];
    }

    // The second looks, all under way together.
    template <typename Group, typename Rows>
    PENSTOCK_D PENSTOCK_INLINE void look_again(const Group& g, const cache_view& c,
                                               const Rows& rows,
                                               const unit_shares<PerThread>& shares,
                                               std::uint64_t first) {
        begin_recheck();
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if (from[k] == nullptr) continue;
            page_word again = word[k] != leafless ? load_relaxed(&c.words[word[k]]) : 0;
            if (Windows && (past >> k & 1) != 0) {
                const row_source source = rows.source(first + shares.row(k));
                if (word[k] == leafless)
                    again = absence_of(c, *source.file,
                                       (source.at + shares.unit(k) * sizeof(Unit)) >> c.page_shift);
                good = good && load_relaxed(&c.windows[source.file->slot]) == window[k];
                if (shares.unit(k) == 0) count_through(g, c);
            } else if (shares.unit(k) == 0) {
                touch(&c.words[word[k]], seen[k]);
            }
            good = good && same_frame(again, seen[k]);
        }
    }
};

// Whole group, for rows of at most PerThread units a thread. The places and all of the geometry are
// multiples of the unit. Returns the first row of the batch that it could not deliver, or `count`.
template <typename Unit, std::uint32_t PerThread, bool Windows, typename Group, typename Rows>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t copy_batches(const Group& g, const cache_view& c,
                                                      const Rows& rows, std::uint64_t begin,
                                                      std::uint64_t count) {
    const unit_shares<PerThread> shares(
        g.size(), g.rank(), static_cast<std::uint32_t>(rows.row_bytes() / sizeof(Unit)));
#pragma unroll 1
    for (std::uint64_t i = begin; i < count; i += shares.rows()) {
        unit_batch<Unit, PerThread, Windows> batch;
        batch.look(c, rows, shares, i, count);
        batch.copy(c, rows, shares, i);
        batch.look_again(g, c, rows, shares, i);
        if (!g.all(batch.good)) return i;
        if constexpr (Windows) {
            // One of these rows may let its page enter.
            const std::uint64_t left = count - i;
            const std::uint32_t at_once =
                left < shares.rows() ? static_cast<std::uint32_t>(left) : shares.rows();
            const bool enters =
                g.is_leader() && (batch.past & 1) != 0 && draws(g, rows.entry_rate(), at_once);
            if (g.broadcast(enters ? 1 : 0) == 0) continue;
            const row_source source = rows.source(i);
            admit_page(g, c, *source.file, source.at >> c.page_shift);
        }
    }
    return count;
}

// The same with windows, out of line: its registers would add to those of a hit.
template <typename Unit, std::uint32_t PerThread, typename Group, typename Rows>
PENSTOCK_D PENSTOCK_NOINLINE std::uint64_t copy_batches_past(const Group g, const cache_view& c,
                                                             const Rows rows, std::uint64_t begin,
                                                             std::uint64_t count) {
    return copy_batches<Unit, PerThread, true>(g, c, rows, begin, count);
}

// How many units of a row each thread takes. The threads of a row look at its page words, so fewer
// threads are fewer looks, as long as they load 128 bytes together.
template <typename Unit>
PENSTOCK_D PENSTOCK_INLINE std::uint32_t units_a_thread(std::uint64_t units, std::uint32_t size) {
    constexpr std::uint64_t line = 128 / sizeof(Unit);
    return units >= 4 * line || units > 2 * size ? 4 : units >= 2 * line || units > size ? 2 : 1;
}

// Whole group. The same for rows of any length; rows that are too long for it are left to the
// caller.
template <typename Unit, bool Windows, typename Group, typename Rows>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t copy_rows_by_unit(const Group& g, const cache_view& c,
                                                           const Rows& rows, std::uint64_t begin,
                                                           std::uint64_t count) {
    if (c.word_count >> 32 != 0) return begin;
    const std::uint64_t units = rows.row_bytes() / sizeof(Unit);
    if (units > 4 * g.size()) return begin;
    const std::uint32_t per_thread = units_a_thread<Unit>(units, g.size());
    if constexpr (Windows) {
        if (per_thread == 1) return copy_batches_past<Unit, 1>(g, c, rows, begin, count);
        if (per_thread == 2) return copy_batches_past<Unit, 2>(g, c, rows, begin, count);
        return copy_batches_past<Unit, 4>(g, c, rows, begin, count);
    } else {
        if (per_thread == 1) return copy_batches<Unit, 1, false>(g, c, rows, begin, count);
        if (per_thread == 2) return copy_batches<Unit, 2, false>(g, c, rows, begin, count);
        return copy_batches<Unit, 4, false>(g, c, rows, begin, count);
    }
}

#endif

}  // namespace penstock::engine
