// One block of a collage from beginning to end: the same text for GPU and CPU, and for every way of
// reading the library.
//
// A source of the library has, for a member m of the group (0 or a negative errno):
//   int slot(m, table, slot, buffer, begin, end)            where the slot's entries begin and end
//   int entries(m, table, first, count, buffer, out)        `out` points to the entries, in
//                                                           `buffer` or elsewhere
//   int record(m, id, visit)                                visit(counts, first bin, bins) for
//                                                           pieces of the histogram
//   int tile(m, id, buffer, out)                            `out` points to the tile's pixels, in
//                                                           `buffer` or elsewhere
#pragma once

#include <cerrno>
#include <cstdint>

#include "block_state.hpp"

namespace penstock::collage {

#if defined(__CUDACC__)
// This thread's part of a piece of two histograms, sixteen bytes at a time. Both are aligned so.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t partial_distance(const warp& w, const std::uint32_t* a,
                                                          const std::uint32_t* b,
                                                          std::uint32_t count) {
    std::uint32_t sum = 0;
    const auto* const wide_a = reinterpret_cast<const uint4*>(a);
    const auto* const wide_b = reinterpret_cast<const uint4*>(b);
#pragma unroll 6
    for (std::uint32_t i = w.rank(); i < count / 4; i += 32) {
        const uint4 x = wide_a[i], y = wide_b[i];
        sum += squared_difference(x.x, y.x) + squared_difference(x.y, y.y) +
               squared_difference(x.z, y.z) + squared_difference(x.w, y.w);
    }
    return sum;
}
#endif

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t partial_distance(const lane&, const std::uint32_t* a,
                                                           const std::uint32_t* b,
                                                           std::uint32_t count) {
#if PENSTOCK_ON_DEVICE
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += squared_difference(a[i], b[i]);
    return sum;
#else
    return distance_of(a, b, count);
#endif
}

// One member: the candidates of one table.
template <typename Group, typename Member, typename Source>
PENSTOCK_HD PENSTOCK_INLINE int gather_table(const Group& g, const Member& m, const Source& source,
                                             const collage_view& v, std::uint32_t table,
                                             state_of<Group>& s) {
    const std::uint64_t key = s.keys[table];
    std::uint32_t at = 0, end = 0;
    table_entry* const buffer = s.chunk[team<Group>::number()];
    if (const int code = source.slot(m, table, slot_of(key, v.lsh.slots), buffer, at, end);
        code != 0)
        return code;
    if (at > end || end > v.table_entries[table]) return -EBADMSG;
    const auto fingerprint = static_cast<std::uint32_t>(key);
    while (at < end) {
        const std::uint32_t count = end - at < chunk_entries ? end - at : chunk_entries;
        const table_entry* some = nullptr;
        if (const int code = source.entries(m, table, at, count, buffer, some); code != 0)
            return code;
        bool good = true;
        for (std::uint32_t i = m.rank(); i < count; i += m.size()) {
            const table_entry e = some[i];
            if (e.fingerprint != fingerprint) continue;
            if (e.id < v.tile_count) add_candidate(g, s, e.id);
            else good = false;
        }
        if (!m.all(good)) return -EBADMSG;
        m.sync();  // all have read the chunk before the next one comes
        at += count;
    }
    return 0;
}

// One member: compares candidates as long as there are any.
template <typename Group, typename Member, typename Source>
PENSTOCK_HD PENSTOCK_INLINE int compare_candidates(const Group& g, const Member& m,
                                                   const Source& source, const collage_view& v,
                                                   state_of<Group>& s) {
    std::uint64_t best = no_score;
    int code = 0;
    while (code == 0) {
        std::uint64_t taken = no_tile;
        if (m.is_leader())
            if (const std::uint32_t place = add_shared(g, &s.next, 1); place < s.count)
                taken =
                    s.list[place + s.first < s.count ? place + s.first : place + s.first - s.count];
        const auto id = static_cast<std::uint32_t>(m.broadcast(taken));
        if (id == no_tile) break;
        std::uint32_t part = 0;
        code = source.record(
            m, id, [&](const std::uint32_t* counts, std::uint32_t first, std::uint32_t count) {
                part += partial_distance(m, counts, s.histogram + first, count);
            });
        const std::uint32_t distance = team<Group>::sum(m, part);
        if (code != 0 || !m.is_leader()) continue;
        const std::uint64_t score = score_of(distance, id);
        if (score < best) best = score;
        const std::uint64_t bit = std::uint64_t{1} << (id % 64);
        if ((atomic_load<order::relaxed>(&v.seen[id / 64]) & bit) == 0)
            atomic_or_relaxed(&v.seen[id / 64], bit);
    }
    if (m.is_leader()) min_shared(g, &s.best, best);
    return code;
}

// Whole group: the winner's pixels to the block's place.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_INLINE void place_tile(const Group& g, const Source& source,
                                            const collage_view& v, state_of<Group>& s) {
    const std::uint8_t* pixels = s.tile;
    if (team<Group>::number() == 0) {
        const typename team<Group>::member m{};
        const int code = source.tile(m, static_cast<std::uint32_t>(s.best), s.tile, pixels);
        if (m.is_leader()) note_code(g, s, code);
    }
    g.sync();
    if (s.code != 0) return;
    const std::uint32_t left = s.block % v.columns * tile_side;
    const std::uint32_t top = s.block / v.columns * tile_side;
    const std::uint32_t row_bytes = (v.width - left < tile_side ? v.width - left : tile_side) * 3;
    const std::uint32_t rows = v.height - top < tile_side ? v.height - top : tile_side;
    for (std::uint32_t i = g.rank(); i < rows * tile_side * 3; i += g.size()) {
        const std::uint32_t y = i / (tile_side * 3), x = i % (tile_side * 3);
        if (x < row_bytes) v.out[(std::uint64_t{top + y} * v.width + left) * 3 + x] = pixels[i];
    }
}

// Whole group: block s.block.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_INLINE void make_block(const Group& g, const Source& source,
                                            const collage_view& v, state_of<Group>& s) {
    count_block(g, v, s.block, s);
    hash_block(g, v.lsh, s);
    const typename team<Group>::member m{};
    for (std::uint32_t t = team<Group>::number(); t < tables; t += team<Group>::members()) {
        const int code = gather_table(g, m, source, v, t, s);
        if (m.is_leader()) note_code(g, s, code);
    }
    const bool stood_in = fall_back(g, v.tile_count, s);
    if (s.code == 0) {
        const int code = compare_candidates(g, m, source, v, s);
        if (m.is_leader()) note_code(g, s, code);
    }
    g.sync();
    if (s.code == 0) place_tile(g, source, v, s);
    if (g.is_leader()) {
        atomic_add_relaxed(&v.totals->evaluations, std::uint64_t{s.count});
        if (stood_in) atomic_add_relaxed(&v.totals->fallback_blocks, std::uint64_t{1});
        if (s.code != 0)
            atomic_compare_swap<order::relaxed>(&v.totals->code, std::int32_t{0},
                                                static_cast<std::int32_t>(s.code));
    }
    g.sync();  // all have seen the code before the next block clears it
}

}  // namespace penstock::collage
