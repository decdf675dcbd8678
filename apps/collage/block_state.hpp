// One block of the picture while it is worked on: shared memory of a thread block, or the stack of
// a CPU thread.
#pragma once

#include <cstdint>

#include "collage_view.hpp"
#include "distance.hpp"
#include "team.hpp"

namespace penstock::collage {

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
    std::uint32_t block;  // its number in the picture; or no_tile, if there is none to make
    std::uint32_t count;  // in the list
    std::uint32_t first;  // in the list, to be compared; the others follow, the list's beginning
                          // after its end
    std::uint32_t next;   // how many were taken to be compared
    std::uint32_t code;   // a negative errno as unsigned; 0: none
};

template <typename Group>
using state_of = block_state<team<Group>::most_members>;

template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void note_code(const Group& g, state_of<Group>& s, std::int64_t code) {
    if (code < 0)
        swap_shared(g, &s.code, std::uint32_t{0},
                    static_cast<std::uint32_t>(static_cast<std::int32_t>(code)));
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
        s.first = static_cast<std::uint32_t>(mix(block));
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
        project(lsh.coefficients, s.features_of, s.sums);
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
        std::uint32_t cells[projections_per_table];
        for (std::uint32_t k = 0; k < projections_per_table; ++k) {
            const std::uint32_t p = t * projections_per_table + k;
            cells[k] = cell_of(s.sums[p], lsh.offsets[p], lsh.width);
        }
        s.keys[t] = key_of(t, cells);
    }
    g.sync();
}

// Any thread: takes the tile into the list, if it is not there already.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE void add_candidate(const Group& g, state_of<Group>& s,
                                               std::uint32_t id) {
    for (std::uint32_t place = static_cast<std::uint32_t>(mix(id + golden)) % set_places;;
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

}  // namespace penstock::collage
