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

// Whole group, for rows of at most PerThread units a thread. The places and all of the geometry are
// multiples of the unit; page words have 32-bit numbers, which saves the registers that a fourth
// unit needs. Returns the first row of the batch that it could not deliver, or `count`.
template <typename Unit, std::uint32_t PerThread, typename Group, typename Rows>
PENSTOCK_D PENSTOCK_NOINLINE std::uint64_t copy_batches(const Group g, const cache_view& c,
                                                        const Rows rows, std::uint64_t begin,
                                                        std::uint64_t count) {
    constexpr std::uint32_t leafless = ~0u;
    const unit_shares<PerThread> shares(
        g.size(), g.rank(), static_cast<std::uint32_t>(rows.row_bytes() / sizeof(Unit)));
#pragma unroll 1
    for (std::uint64_t i = begin; i < count; i += shares.rows()) {
        std::uint32_t word[units_in_flight] = {};
        page_word seen[units_in_flight] = {};
        std::uint64_t at[units_in_flight] = {};
        window_word window[units_in_flight] = {};
        // A bit for each unit: it is stored; it comes from a frame or a window; from a window.
        std::uint32_t stored = 0, loaded = 0, past = 0;
        bool good = true;
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if (!shares.has(k) || shares.row(k) >= count - i) continue;
            const row_source source = rows.source(i + shares.row(k));
            if (source.is == row_source::outside) good = false;
            else stored |= 1u << k;
            if (source.is != row_source::in_file) continue;
            loaded |= 1u << k;
            at[k] = source.at + shares.unit(k) * sizeof(Unit);
            const std::uint64_t word_index = find_word(c, *source.file, at[k] >> c.page_shift);
            word[k] = word_index == no_word ? leafless : static_cast<std::uint32_t>(word_index);
            if (word_index != no_word) seen[k] = load_relaxed(&c.words[word_index]);
            window[k] = rows.window_for(*source.file);
        }
        const std::byte* from[units_in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if ((loaded >> k & 1) == 0) continue;
            from[k] = c.frame_address(frame_of(seen[k])) + (at[k] & (c.page_bytes() - 1));
            if (is_valid(seen[k])) continue;
            past |= 1u << k;
            from[k] = window[k] != 0 && may_read_past(seen[k])
                          ? address_in_window(c, window[k], at[k])
                          : nullptr;
            if (from[k] == nullptr) good = false;
        }
        end_load_for_read();
        Unit value[units_in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if (from[k] != nullptr) value[k] = load_shared_element<Unit>(from[k]);
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k)
            if ((stored >> k & 1) != 0)
                *reinterpret_cast<Unit*>(rows.place(i + shares.row(k)) +
                                         shares.unit(k) * sizeof(Unit)) = value[k];
        begin_recheck();
#pragma unroll
        for (std::uint32_t k = 0; k < units_in_flight; ++k) {
            if ((loaded >> k & 1) == 0) continue;
            page_word again = word[k] != leafless ? load_relaxed(&c.words[word[k]]) : 0;
            if ((past >> k & 1) != 0) {
                const row_source source = rows.source(i + shares.row(k));
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
        if (!g.all(good)) return i;
        if (g.broadcast(g.is_leader() && (past & 1) != 0 &&
                        admits(g, c, rows.row_bytes(), shares.rows())) != 0) {
            const row_source source = rows.source(i);
            admit_page(g, c, *source.file, source.at >> c.page_shift);
        }
    }
    return count;
}

// Whole group. The same for rows of any length; rows that are too long for it are left to the
// caller.
template <typename Unit, typename Group, typename Rows>
PENSTOCK_D PENSTOCK_INLINE std::uint64_t copy_rows_by_unit(const Group& g, const cache_view& c,
                                                           const Rows& rows, std::uint64_t begin,
                                                           std::uint64_t count) {
    if (c.word_count >> 32 != 0) return begin;
    const std::uint64_t units = rows.row_bytes() / sizeof(Unit);
    if (units <= g.size()) return copy_batches<Unit, 1>(g, c, rows, begin, count);
    if (units <= 4 * g.size()) return copy_batches<Unit, 4>(g, c, rows, begin, count);
    return begin;
}

#endif

}  // namespace penstock::engine
