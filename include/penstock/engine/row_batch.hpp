// Rows by the batch: the threads of a group look for many rows at once, and then copy them
// together.
//
// Each thread looks for one part of a row (engine/row_parts.hpp): it reads the number, the page
// word and the chunk word of the window, so that these trips to memory are under way for all parts
// of a batch together. Then the group copies the parts that were found one after the other, from
// frames or from windows, each by as many threads as it has units of up to 16 bytes. At the end
// each thread looks at its words again.
//
// In a linked cache the first pass delivers rows of the own cache only, at the speed of a cache
// without links. From the first other row on, copy_far_rows looks in the neighbours too.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/element.hpp"
#include "penstock/engine/row_parts.hpp"
#include "penstock/engine/through.hpp"
#include "penstock/group/concept.hpp"

#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock::engine {

// A unit is the most that one access can load.
template <std::size_t Bytes>
using unit_for = std::conditional_t<
    Bytes == 16, two_words,
    std::conditional_t<
        Bytes == 8, std::uint64_t,
        std::conditional_t<Bytes == 4, std::uint32_t,
                           std::conditional_t<Bytes == 2, std::uint16_t, std::uint8_t>>>>;

// Rows that are copied between two looks: a longer copy is more often in vain, because a page may
// leave the cache meanwhile.
inline constexpr std::uint64_t most_batch_bytes = 65536;

// One thread, after the copy. Do the bytes of its part count?
template <typename Rows>
PENSTOCK_HD PENSTOCK_INLINE bool is_as_found(const cache_view& c, const Rows& rows, std::uint64_t i,
                                             std::uint32_t number, const found_part& part) {
    if (part.from == nullptr) return true;
    const bool same_window = is_window_as_found(c, part);  // both looks under way together
    if (part.window == 0) touch(&c.words[part.word_index], part.seen);
    return is_page_as_found(c, rows, i, number, part) && same_window;
}
template <typename Rows>
PENSTOCK_HD PENSTOCK_INLINE bool is_as_found(const cache_view& c, const Rows& rows, std::uint64_t i,
                                             std::uint32_t number, const far_part& part) {
    if (part.neighbour.frame == nullptr)
        return is_as_found(c, rows, i, number, static_cast<const found_part&>(part));
    const bool as_seen = is_as_seen(c, *rows.source(i).file, part.neighbour);
    return is_page_as_found(c, rows, i, number, part) && as_seen;
}

// Where a pass looks for the parts of rows.
struct near_pass {
    using part = found_part;
    template <typename Rows>
    static PENSTOCK_HD PENSTOCK_INLINE part find(const cache_view& c, const Rows& rows,
                                                 std::uint64_t i, std::uint32_t number) {
        return find_part(c, rows, i, number);
    }
    static PENSTOCK_HD PENSTOCK_INLINE bool is_from_neighbour(const part&) { return false; }
    static PENSTOCK_HD PENSTOCK_INLINE void end(const cache_view&, const part&) {}
};
struct far_pass {
    using part = far_part;
    template <typename Rows>
    static PENSTOCK_HD PENSTOCK_INLINE part find(const cache_view& c, const Rows& rows,
                                                 std::uint64_t i, std::uint32_t number) {
        return find_far_part(c, rows, i, number);
    }
    static PENSTOCK_HD PENSTOCK_INLINE bool is_from_neighbour(const part& found) {
        return found.neighbour.frame != nullptr;
    }
    static PENSTOCK_HD PENSTOCK_INLINE void end(const cache_view& c, const part& found) {
        leave_neighbours(c, found.neighbour);
    }
};

// How the threads of a group share out parts of at most `units` units: `team` threads to a part. A
// group has so few threads that one division serves all (`inverse`, 2^16 over the team, rounded
// up).
struct part_teams {
    std::uint32_t team, inverse, teams, my_team, my_unit, rounds;

    PENSTOCK_HD PENSTOCK_INLINE part_teams(std::uint32_t size, std::uint32_t rank,
                                           std::uint32_t units)
        : team(units < size ? units : size),
          inverse(65536u / team + 1),
          teams(size * inverse >> 16),
          my_team(rank * inverse >> 16),
          my_unit(rank - my_team * team),
          rounds(team == units ? 1 : (units + team - 1) / team) {}
};

// Whole group. Copies the first `parts` parts that the threads of the group found.
template <typename Unit, typename Group>
PENSTOCK_HD PENSTOCK_INLINE void copy_parts(const Group& g, [[maybe_unused]] const part_teams& by,
                                            const found_part& mine, std::uint32_t parts) {
#if PENSTOCK_ON_DEVICE
    constexpr std::uint32_t in_flight = 4;
    const std::uint32_t steps = (parts + by.teams - 1) / by.teams * by.rounds;
    // A thread without a team takes no part.
    std::uint32_t part = by.my_team < by.teams ? by.my_team : parts, unit = by.my_unit;
#pragma unroll 1
    for (std::uint32_t step = 0; step < steps; step += in_flight) {
        Unit value[in_flight] = {};
        std::byte* to[in_flight] = {};
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k) {
            const std::uint32_t finder = part < parts ? part : 0;
            const auto* const from = reinterpret_cast<const std::byte*>(
                g.from_rank(reinterpret_cast<std::uintptr_t>(mine.from), finder));
            to[k] = reinterpret_cast<std::byte*>(
                g.from_rank(reinterpret_cast<std::uintptr_t>(mine.to), finder));
            const std::uint32_t bytes = g.from_rank(mine.bytes, finder),
                                at = unit * static_cast<std::uint32_t>(sizeof(Unit));
            const bool has = part < parts && at < bytes;
            if (has && from != nullptr) value[k] = load_shared_element<Unit>(from + at);
            to[k] = has ? to[k] + at : nullptr;
            unit += by.team;
            if (unit >= by.rounds * by.team) {
                unit = by.my_unit;
                part += by.teams;
            }
        }
#pragma unroll
        for (std::uint32_t k = 0; k < in_flight; ++k)
            if (to[k] != nullptr) *reinterpret_cast<Unit*>(to[k]) = value[k];
    }
#else
    // A group of the host is one thread.
    if (parts == 0 || mine.bytes == 0) return;
    if (mine.from == nullptr) std::memset(mine.to, 0, mine.bytes);
    else if (mine.word_index == no_word || is_absent(mine.seen))
        g.copy_through(mine.to, mine.from, mine.bytes);
    else g.copy_out(mine.to, mine.from, mine.bytes);
#endif
}

// How many ranks from 0 on voted true, before the first that did not.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t leading_votes(std::uint32_t votes) {
#if PENSTOCK_ON_DEVICE
    return votes == ~0u ? 32u : static_cast<std::uint32_t>(__ffs(static_cast<int>(~votes))) - 1u;
#else
    return static_cast<std::uint32_t>(std::countr_one(votes));
#endif
}

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t votes_in(std::uint32_t votes) {
#if PENSTOCK_ON_DEVICE
    return static_cast<std::uint32_t>(__popc(votes));
#else
    return static_cast<std::uint32_t>(std::popcount(votes));
#endif
}

// How many rows a group looks for at once.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t rows_at_once(const Group& g, const Rows& rows) {
    const std::uint32_t looks = rows.parts() == 1 ? g.size() : g.size() / rows.parts();
    if (looks * rows.row_bytes() <= most_batch_bytes) return looks;
    return rows.row_bytes() < most_batch_bytes
               ? static_cast<std::uint32_t>(most_batch_bytes / rows.row_bytes())
               : 1;
}

// Whole group. Counts the rows of a batch that came from somewhere else than the cache, a vote for
// each part, and lets the page of one of them enter sometimes. `kind` says where from.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE void end_batch(const Group& g, const cache_view& c, const Rows& rows,
                                           std::uint64_t first, std::uint32_t batch,
                                           std::uint32_t votes, counter kind,
                                           entering_pages& entering) {
    bool enters = false;
    if (g.is_leader()) {
        count(g, c, kind, votes_in(votes));
        const bool may_enter = (votes & 1) != 0 && entering.count < g.size();
        if (may_enter && kind == count_neighbour_reads) {
            enters = draws(g, neighbour_rate_of(c, rows.row_bytes()), batch);
        } else if (may_enter && draws(g, rows.draw_rate(), batch)) {
            const row_source source = rows.source(first);
            enters = is_drawn_again(c, source.file->slot, source.at >> c.page_shift);
        }
    }
    if (!g.broadcast(enters)) return;
    const row_source source = rows.source(first);
    if (g.rank() == entering.count) {
        entering.page = source.at >> c.page_shift;
        entering.slot = source.file->slot;
    }
    ++entering.count;
}

// Whole group. Delivers rows that are in the cache or in windows, from row `begin` on. All places
// and all of the geometry are multiples of the unit. Returns the first row that it did not deliver.
template <typename Unit, typename Pass, typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t copy_rows(const Group& g, const cache_view& c,
                                                    const Rows& rows, std::uint64_t begin,
                                                    std::uint64_t end, entering_pages& entering) {
    const std::uint32_t parts = rows.parts(), at_once = rows_at_once(g, rows);
    std::uint32_t my_row = g.rank(), my_part = 0;
    if (parts != 1) {
        my_row = g.rank() / parts;
        my_part = g.rank() % parts;
    }
    const std::uint64_t most_bytes =
        rows.row_bytes() < c.page_bytes() ? rows.row_bytes() : c.page_bytes();
    const part_teams by(g.size(), g.rank(), static_cast<std::uint32_t>(most_bytes / sizeof(Unit)));
    for (std::uint64_t i = begin; i < end; i += at_once) {
        const std::uint32_t batch =
            end - i < at_once ? static_cast<std::uint32_t>(end - i) : at_once;
        // Every call looks once at least, and then in turn; the caller tells why. All threads take
        // the code, since a branch would wait for it: it comes while the rows are looked for.
        std::int64_t stop = 0;
        if (i == begin) stop = stop_code(c);
        else if (g.is_leader()) stop = stop_code_in_turn(c);
        typename Pass::part mine;
        if (my_row < batch) mine = Pass::find(c, rows, i + my_row, my_part);
        end_load_for_read();
        std::uint32_t done = leading_votes(g.votes(mine.is_found && stop == 0));
        if (parts != 1) done /= parts;
        if (done > batch) done = batch;
        g.sync();  // every thread's look comes before any thread's copy
        copy_parts<Unit>(g, by, mine, done * parts);
        begin_recheck_after_copy();
        g.sync();  // every thread has copied before any looks again
        const bool counts = my_row >= done || is_as_found(c, rows, i + my_row, my_part, mine);
        Pass::end(c, mine);  // also of a row that was found and not copied
        std::uint32_t good = leading_votes(g.votes(counts));
        if (parts != 1) good /= parts;
        if (good < done) done = good;
        const std::uint32_t through = g.votes(my_row < done && mine.window != 0);
        if (through != 0) end_batch(g, c, rows, i, batch, through, count_through_reads, entering);
        if constexpr (std::is_same_v<Pass, far_pass>) {
            const std::uint32_t far = g.votes(my_row < done && Pass::is_from_neighbour(mine));
            if (far != 0) end_batch(g, c, rows, i, batch, far, count_neighbour_reads, entering);
        }
        if (done < batch) return i + done;
    }
    return end;
}

// Whole group. The same, and some of the pages that were read through enter.
template <typename Unit, call_kind Call, typename Pass, typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t copy_batches(const Group& g, const cache_view& c,
                                                       const Rows& rows, std::uint64_t begin,
                                                       std::uint64_t end) {
    if (rows.parts() > g.size()) return begin;
    entering_pages entering;
    const std::uint64_t next = copy_rows<Unit, Pass>(g, c, rows, begin, end, entering);
    if (entering.count != 0) door<Call> (&admit_pages<Group>)(g, c, entering);
    return next;
}

// Whole group. The same, also for groups of many warps, which share out the rows; then other rows
// behind the first that was not delivered may have been. Groups of another kind deliver nothing.
template <typename Unit, call_kind Call, typename Pass = near_pass, typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t copy_in_batches(const Group& g, const cache_view& c,
                                                          const Rows& rows, std::uint64_t begin,
                                                          std::uint64_t end) {
    if constexpr (!Group::copies_race()) {
        return begin;
    } else if constexpr (narrow_group<Group>) {
        return copy_batches<Unit, Call, Pass>(g, c, rows, begin, end);
    } else if constexpr (group_of_warps<Group>) {
#if PENSTOCK_ON_DEVICE
        if (g.size() % 32 != 0) return begin;
        const std::uint64_t warps = g.size() / 32, share = (end - begin + warps - 1) / warps,
                            first = begin + g.rank() / 32 * share,
                            last = first + share < end ? first + share : end;
        const std::uint64_t done =
            first < last ? copy_batches<Unit, Call, Pass>(warp(), c, rows, first, last) : end;
        return g.least(done == last ? end : done);
#endif
    }
    return begin;
}

// Whole group. The same, for rows whose places are not all multiples of 16 bytes.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t copy_odd_rows(const Group g, const cache_view& c,
                                                          const Rows rows, std::uint64_t begin,
                                                          std::uint64_t end) {
    const std::uint64_t low = rows.low_bits();
    if ((low & 7) == 0)
        return copy_in_batches<unit_for<8>, call_kind::direct>(g, c, rows, begin, end);
    if ((low & 3) == 0)
        return copy_in_batches<unit_for<4>, call_kind::direct>(g, c, rows, begin, end);
    return copy_in_batches<unit_for<1>, call_kind::direct>(g, c, rows, begin, end);
}

// Whole group. The same, for rows anywhere.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t copy_present_rows(const Group& g, const cache_view& c,
                                                            const Rows& rows, std::uint64_t begin,
                                                            std::uint64_t end) {
    if ((rows.low_bits() & 15) == 0)
        return copy_in_batches<unit_for<16>, call_kind::by_address>(g, c, rows, begin, end);
    return by_address(&copy_odd_rows<Group, Rows>)(g, c, rows, begin, end);
}

// Whole group. The same in a linked cache, with rows that a neighbour holds.
template <typename Group, typename Rows>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t copy_far_rows(const Group g, const cache_view& c,
                                                          const Rows rows, std::uint64_t begin,
                                                          std::uint64_t end) {
    const std::uint64_t low = rows.low_bits();
    if ((low & 15) == 0)
        return copy_in_batches<unit_for<16>, call_kind::direct, far_pass>(g, c, rows, begin, end);
    if ((low & 3) == 0)
        return copy_in_batches<unit_for<4>, call_kind::direct, far_pass>(g, c, rows, begin, end);
    return copy_in_batches<unit_for<1>, call_kind::direct, far_pass>(g, c, rows, begin, end);
}

}  // namespace penstock::engine
