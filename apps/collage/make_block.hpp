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
//   static fills_buffers                                    whether `out` always points to `buffer`
#pragma once

#include <cerrno>
#include <cstdint>

#include "library.hpp"
#include "team.hpp"

namespace penstock::collage {

struct collage_totals {
    std::uint64_t evaluations;      // candidates compared with a block
    std::uint64_t fallback_blocks;  // that met no candidate in any bucket
    std::int32_t code;              // 0, or the first error of any block
};

struct collage_view {
    const std::uint8_t* picture;  // the input, three bytes a pixel
    std::uint8_t* out;            // of the same size
    std::uint32_t width;
    std::uint32_t height;
    std::uint32_t columns;  // of blocks; partial ones at the right and bottom count
    std::uint32_t rows;
    const std::uint32_t* order;  // of the blocks: which is made as number i (picture.hpp)
    lsh_ref lsh;
    std::uint64_t tile_count;
    std::uint32_t table_entries[tables];
    std::uint64_t* seen;  // one bit for each tile: it was a candidate of some block
    collage_totals* totals;

    PENSTOCK_HD std::uint64_t blocks() const { return std::uint64_t{columns} * rows; }
};

// Squared Euclidean distance of two histograms, in whole numbers: at most 6,291,456, so it fits the
// upper half of a word whose lower half is the tile's number, and the least such word is the best
// tile.

// One bin's part.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t squared_difference(std::uint32_t a, std::uint32_t b) {
    const std::uint32_t d = a - b;  // modulo 2^32; its square is right all the same
#if defined(PENSTOCK_COLLAGE_WRONG_DISTANCE)
    // Not squared: only in the program that the tests must find out.
    return d > 1u << 31 ? 0u - d : d;
#else
    return d * d;
#endif
}

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t score_of(std::uint32_t distance, std::uint32_t id) {
    return std::uint64_t{distance} << 32 | id;
}

inline constexpr std::uint64_t no_score = ~std::uint64_t{0};

// On a CPU: over `count` bins, by one loop that the compiler turns into vector code for each kind
// of processor.
std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count);

// "AVX-512", "AVX2" or "SSE2": what distance_of uses here.
const char* vector_name();

// One block of the picture while it is worked on: shared memory of a thread block, or the stack of
// a CPU thread.

inline constexpr std::uint32_t chunk_entries = 64;  // of a table, read at a time
// A power of two; at most half of them are used.
inline constexpr std::uint32_t set_places = 2 * most_candidates;
inline constexpr std::uint32_t no_tile = ~std::uint32_t{0};

template <std::uint32_t Members>
struct alignas(16) block_state {
    std::uint32_t histogram[bins];
    std::int32_t sums[projections];
    std::uint64_t keys[tables];
    std::uint64_t best;
    std::uint16_t features_of[features];
    union {
        std::uint32_t set[set_places];              // candidates so far, to keep each once
        alignas(16) std::uint8_t tile[tile_bytes];  // the winner, when the set is no longer needed
    };
    std::uint32_t list[most_candidates];
    alignas(16) table_entry chunk[Members][chunk_entries];
    std::uint32_t block;  // its number in the picture
    std::uint32_t count;  // in the list
    std::uint32_t first;  // in the list, to be compared; the others follow, the list's beginning
                          // after its end
    std::uint32_t next;   // how many were taken to be compared
    std::uint32_t code;   // a negative errno as unsigned; 0: none
};

template <typename Group>
using state_of = block_state<team<Group>::most_members>;

// Whole member.
template <typename Group, typename Member>
PENSTOCK_HD PENSTOCK_INLINE void note_code(const Group& g, const Member& m, state_of<Group>& s,
                                           int code) {
    if (code < 0 && m.is_leader())
        swap_shared(g, &s.code, std::uint32_t{0}, static_cast<std::uint32_t>(code));
}

// Whole group: clears the state and counts the block's histogram. A partial block is continued by
// its last column and row, so every histogram counts 1024 pixels.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void count_block(const Group& g, const collage_view& v,
                                             std::uint64_t block, state_of<Group>& s) {
    for (std::uint32_t i = g.rank(); i < bins; i += g.size()) s.histogram[i] = 0;
    for (std::uint32_t i = g.rank(); i < set_places; i += g.size()) s.set[i] = no_tile;
    if (g.is_leader()) {
        s.best = no_score;
        s.count = s.next = s.code = 0;
        s.first = static_cast<std::uint32_t>(mix64(block));
    }
    g.sync();
    const std::uint32_t left = static_cast<std::uint32_t>(block % v.columns) * tile_side;
    const std::uint32_t top = static_cast<std::uint32_t>(block / v.columns) * tile_side;
    for (std::uint32_t i = g.rank(); i < tile_side * tile_side; i += g.size()) {
        const std::uint32_t x = left + i % tile_side < v.width ? left + i % tile_side : v.width - 1;
        const std::uint32_t y = top + i / tile_side < v.height ? top + i / tile_side : v.height - 1;
        const std::uint8_t* const pixel = v.picture + (std::uint64_t{y} * v.width + x) * 3;
        for (std::uint32_t c = 0; c < 3; ++c) add_shared(g, &s.histogram[256 * c + pixel[c]], 1);
    }
    g.sync();
}

// Whole group: features, projections and the key of each table.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void hash_block(const Group& g, const lsh_ref& lsh,
                                            state_of<Group>& s) {
    for (std::uint32_t f = g.rank(); f < features; f += g.size())
        s.features_of[f] = feature_of(s.histogram, f);
    g.sync();
    if (g.size() == 1) {
        project<projections>(lsh.coefficients, s.features_of, s.sums);
    } else {
        for (std::uint32_t p = g.rank(); p < projections; p += g.size()) {
            std::int32_t sum = 0;
            for (std::uint32_t f = 0; f < features; ++f)
                sum += s.features_of[f] * lsh.coefficients[f * projections + p];
            s.sums[p] = sum;
        }
    }
    g.sync();
    for (std::uint32_t t = g.rank(); t < tables; t += g.size()) {
        const std::uint32_t first = t * projections_per_table;
        s.keys[t] = key_of(t, s.sums + first, lsh.offsets + first, lsh.width);
    }
    g.sync();
}

// Any thread: takes the tile into the list, if it is not there already.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void add_candidate(const Group& g, state_of<Group>& s,
                                               std::uint32_t id) {
    for (std::uint32_t place = static_cast<std::uint32_t>(mix64(id + golden)) % set_places;;
         place = (place + 1) % set_places) {
        std::uint32_t there = load_shared(g, &s.set[place]);
        if (there == no_tile && load_shared(g, &s.count) < most_candidates) {
            if (swap_shared(g, &s.set[place], no_tile, id)) {
                const std::uint32_t at = add_shared(g, &s.count, 1);
                if (at < most_candidates) s.list[at] = id;
                return;
            }
            there = load_shared(g, &s.set[place]);
        }
        if (there == id || there == no_tile) return;
    }
}

// Whole group, after all candidates came: where there are none, tiles spread over the library stand
// in. True if so. Blocks that are alike have lists that are alike; each begins somewhere else, or
// all would wait for the same pages at the same time.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE bool fall_back(const Group& g, std::uint64_t tile_count,
                                           state_of<Group>& s) {
    g.sync();
    // Threads that came together for the last place have each counted on.
    if (g.is_leader() && s.count > most_candidates) s.count = most_candidates;
    g.sync();
    const bool empty = s.count == 0;
    const auto stand_in = static_cast<std::uint32_t>(
        tile_count < fallback_candidates ? tile_count : fallback_candidates);
    g.sync();
    if (empty) {
        for (std::uint32_t i = g.rank(); i < stand_in; i += g.size())
            s.list[i] = static_cast<std::uint32_t>(i * tile_count / stand_in);
        if (g.is_leader()) s.count = stand_in;
    }
    if (g.is_leader()) s.first %= s.count;
    g.sync();
    return empty;
}

#if defined(__CUDACC__)
// This thread's part of a piece of two histograms, sixteen bytes at a time. Both are aligned so.
template <group Member>
PENSTOCK_D PENSTOCK_INLINE std::uint32_t partial_distance(const Member& m, const std::uint32_t* a,
                                                          const std::uint32_t* b,
                                                          std::uint32_t count) {
    std::uint32_t sum = 0;
    const auto* const wide_a = reinterpret_cast<const uint4*>(a);
    const auto* const wide_b = reinterpret_cast<const uint4*>(b);
#pragma unroll 6
    for (std::uint32_t i = m.rank(); i < count / 4; i += m.size()) {
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
    if (!Source::fills_buffers || team<Group>::number() == 0) {
        const typename team<Group>::member m{};
        note_code(g, m, s, source.tile(m, static_cast<std::uint32_t>(s.best), s.tile, pixels));
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
    for (std::uint32_t t = team<Group>::number(); t < tables; t += team<Group>::members())
        note_code(g, m, s, gather_table(g, m, source, v, t, s));
    const bool stood_in = fall_back(g, v.tile_count, s);
    if (s.code == 0) note_code(g, m, s, compare_candidates(g, m, source, v, s));
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

// Whole group: block number i of the order.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_INLINE void make_one(const Group& g, const Source& source,
                                          const collage_view& v, std::uint64_t i) {
#if PENSTOCK_ON_DEVICE
    __shared__ state_of<Group> state;
#else
    state_of<Group> state;
#endif
    if (g.is_leader()) state.block = v.order[i];
    g.sync();
    make_block(g, source, v, state);
}

}  // namespace penstock::collage
