// The search for shortest paths: one body for CPU threads and for the threads of a GPU
// (delta-stepping: Meyer and Sanders, 2003).
//
// Distances are cut into buckets. A scan puts the vertices whose distance lies in the bucket into a
// queue; then the edges of those in the queue are followed, and vertices that come nearer and lie
// in the bucket too are put into the other queue, until that stays empty. All vertices of the
// bucket have their final distances then, and the next one follows. There is no list of vertices
// farther away: the scan of plain numbers costs less than to keep one.
//
// A `Team` is all threads that search together: each(count, f) shares f(0) to f(count - 1) among
// threads, each_part among warps, whose threads are the lanes; sync() is a barrier of all, and
// flush() is called by all, after each step, before anybody reads what put() put into a queue.
// Weights may be 0, for a distance that is stored always goes down, and so the search ends.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "graph_file.hpp"

namespace penstock::sssp {

// What a search works on, as plain pointers that a GPU or CPU threads reach.

// What is done at a time of one vertex: up to so many of its edges. A vertex of very many is so
// shared by many.
inline constexpr std::uint64_t edges_of_part = 256;

struct alignas(8) part {
    std::uint32_t vertex;
    std::uint32_t number;
};

enum class fault : std::uint32_t { none, damaged, too_far, endless };

// Where the search is. Changed between steps by one thread, and within a step by atomic operations.
struct search_state {
    std::uint64_t counts[2];     // parts in each queue
    std::uint64_t bucket_parts;  // that were done since the bucket began
    std::uint64_t bucket_steps;  // that followed edges since then
    std::uint64_t parts;         // that were done in all
    std::uint64_t edges;         // that were looked at in all
    std::uint64_t step;          // from 1 on
    std::uint32_t current;       // the queue that is read; the other one is filled
    std::uint32_t is_scan;  // this step looks through all vertices for those in the bucket; else it
                            // follows the edges of those in the queue
    std::uint32_t low, high;   // the bucket: vertices with distances from low on and below high.
                               // Those below low have their final ones
    std::uint32_t width;       // of the next bucket
    std::uint32_t least;       // found by the scan: the least distance from `high` on
    std::uint32_t is_suspect;  // a path was too long, which may have been no shortest one
    std::uint32_t is_check;    // this step, the last, finds out whether one was
    std::uint32_t is_done;
    std::uint32_t failed;  // a fault
};

struct search_view {
    graph_view graph;
    std::uint32_t* distances;  // of each vertex
    std::uint32_t* stamps;     // the step for which a vertex was last put into a queue
    part* queues[2];
    std::uint64_t room;  // parts that a queue holds
    search_state* state;
    std::uint32_t delta;  // width of a bucket
};

// In one step a vertex is put into a queue once.
constexpr std::uint64_t parts_of(const graph_shape& shape) {
    return shape.vertices + apps::pieces_of(shape.edges, edges_of_part);
}

// Narrow buckets do less in vain, wide ones take fewer steps: about two edges of a vertex stay
// within a bucket.
constexpr std::uint32_t usual_delta(const graph_shape& shape, std::uint32_t weight) {
    const std::uint64_t wanted = shape.edges == 0 ? 1 : 2 * weight * shape.vertices / shape.edges;
    return wanted < 1 ? 1 : wanted > 1000000000 ? 1000000000 : static_cast<std::uint32_t>(wanted);
}

inline search_state first_state(std::uint32_t delta) {
    search_state out{};
    out.step = 1;
    out.is_scan = 1;
    out.high = out.width = delta;
    out.least = unreachable;
    return out;
}

// The steps.

inline constexpr std::uint64_t edges_ahead = 24;

// Lowers the word to `value` unless it is that low already. True if it did.
PENSTOCK_D PENSTOCK_INLINE bool lower(std::uint32_t* address, std::uint32_t value) {
#if PENSTOCK_ON_DEVICE
    return ::atomicMin(address, value) > value;
#else
    for (std::uint32_t seen = atomic_load<order::relaxed>(address); seen > value;
         seen = atomic_load<order::relaxed>(address))
        if (atomic_compare_swap<order::relaxed>(address, seen, value)) return true;
    return false;
#endif
}

// Edges are used once in a while, and must not take the room of the distances in the caches.
PENSTOCK_D PENSTOCK_INLINE edge load_edge(const edge* from) {
#if PENSTOCK_ON_DEVICE
    const uint2 both = __ldcs(reinterpret_cast<const uint2*>(from));
    return {both.x, both.y};
#else
    return *from;
#endif
}

// On a CPU: asks for the distances that edges [first, end) lead to, which lie anywhere. A GPU has
// other threads to run while one waits.
PENSTOCK_D PENSTOCK_INLINE void ask_for_targets([[maybe_unused]] const search_view& v,
                                                [[maybe_unused]] std::uint64_t first,
                                                [[maybe_unused]] std::uint64_t end) {
#if !PENSTOCK_ON_DEVICE
    for (std::uint64_t e = first; e < end; ++e)
        __builtin_prefetch(v.distances + v.graph.edges[e].target);
#endif
}

PENSTOCK_D PENSTOCK_INLINE void note(const search_view& v, fault reason) {
    atomic_store<order::relaxed>(&v.state->failed, static_cast<std::uint32_t>(reason));
}

// A program that changes the file while it is searched could make its offsets anything. So no place
// outside of the edges is looked at.
template <typename Team>
PENSTOCK_D void put_into_queue(Team& team, const search_view& v, std::uint32_t queue,
                               std::uint32_t vertex) {
    const std::uint64_t begin = v.graph.offsets[vertex],
                        end = v.graph.offsets[vertex + std::uint64_t{1}];
    if (begin > end || end > v.graph.edge_count) return note(v, fault::damaged);
    if (begin < end)
        team.put(v, queue, vertex,
                 static_cast<std::uint32_t>((end - begin - 1) / edges_of_part + 1));
}

template <typename Team>
PENSTOCK_D void scan_vertices(Team& team, const search_view& v, std::uint32_t low,
                              std::uint32_t high, std::uint32_t queue) {
    std::uint32_t least = unreachable;
    team.each(v.graph.vertices, [&](std::uint64_t vertex) {
        const std::uint32_t distance = v.distances[vertex];
        if (distance < low) return;
        if (distance < high) put_into_queue(team, v, queue, static_cast<std::uint32_t>(vertex));
        else if (distance < least) least = distance;
    });
    team.flush(v, queue);
    team.lower_for_all(&v.state->least, least);
}

// Follows one edge. True if its target came nearer and is to be followed in the next step, and no
// other thread has seen to that.
PENSTOCK_D PENSTOCK_INLINE bool relax(const search_view& v, const edge& e, std::uint32_t from,
                                      std::uint32_t high, std::uint32_t next_step) {
    if (e.target >= v.graph.vertices) {
        note(v, fault::damaged);
        return false;
    }
    // `from` need not be final, so a sum that is too large says nothing yet. It is not stored.
    const std::uint64_t distance = std::uint64_t{from} + e.weight;
    if (distance >= unreachable) {
        atomic_store<order::relaxed>(&v.state->is_suspect, 1u);
        return false;
    }
    const auto nearer = static_cast<std::uint32_t>(distance);
    if (atomic_load<order::relaxed>(v.distances + e.target) <= nearer ||
        !lower(v.distances + e.target, nearer))
        return false;
    return nearer < high &&
           atomic_exchange<order::relaxed>(v.stamps + e.target, next_step) != next_step;
}

// Returns how many edges this thread looked at.
template <typename Team>
PENSTOCK_D std::uint64_t follow_edges(Team& team, const search_view& v, const part* parts,
                                      std::uint64_t count, std::uint32_t high, std::uint32_t queue,
                                      std::uint32_t next_step) {
    std::uint64_t edges = 0;
    team.each_part(count, [&](std::uint64_t i, std::uint32_t lane, std::uint32_t lanes) {
        const part own_part = parts[i];
        const std::uint32_t from = atomic_load<order::relaxed>(v.distances + own_part.vertex);
        const std::uint64_t begin =
                                v.graph.offsets[own_part.vertex] + own_part.number * edges_of_part,
                            last = v.graph.offsets[own_part.vertex + std::uint64_t{1}];
        if (last > v.graph.edge_count) return note(v, fault::damaged);
        const std::uint64_t end = apps::lesser(begin + edges_of_part, last);
        ask_for_targets(v, begin, apps::lesser(begin + edges_ahead, end));
        for (std::uint64_t e = begin + lane; e < end; e += lanes) {
            ask_for_targets(v, e + edges_ahead, apps::lesser(e + edges_ahead + 1, end));
            const edge followed = load_edge(v.graph.edges + e);
            if (relax(v, followed, from, high, next_step))
                put_into_queue(team, v, queue, followed.target);
            ++edges;
        }
    });
    team.flush(v, queue);
    return edges;
}

// When all distances are final. No sum that was too large was stored, so a vertex that an edge
// leads to from one that was reached, and that was not reached itself, has a shortest path that is
// too long. Every other one has its distance: all before it on its shortest path are nearer.
template <typename Team>
PENSTOCK_D void check_for_too_far(Team& team, const search_view& v) {
    team.each(v.graph.vertices, [&](std::uint64_t vertex) {
        if (v.distances[vertex] == unreachable) return;
        const std::uint64_t begin = v.graph.offsets[vertex], end = v.graph.offsets[vertex + 1];
        if (begin > end || end > v.graph.edge_count) return note(v, fault::damaged);
        for (std::uint64_t e = begin; e < end; ++e) {
            const std::uint32_t target = v.graph.edges[e].target;
            if (target >= v.graph.vertices) return note(v, fault::damaged);
            if (v.distances[target] == unreachable) return note(v, fault::too_far);
        }
    });
}

PENSTOCK_D inline void begin_bucket(search_state& s, std::uint32_t low) {
    s.low = low;
    s.high = unreachable - low < s.width ? unreachable : low + s.width;
    s.least = unreachable;
    s.bucket_parts = s.bucket_steps = 0;
    s.is_scan = 1;
}

// Between steps, by one thread.
PENSTOCK_D inline void advance(const search_view& v) {
    search_state& s = *v.state;
    const std::uint64_t found = s.counts[s.current ^ 1];
    ++s.step;
    if (s.is_check != 0) {
        s.is_done = 1;
    } else if (found != 0) {
        s.counts[s.current] = 0;
        s.current ^= 1;
        s.parts += found;
        s.bucket_parts += found;
        ++s.bucket_steps;
        s.is_scan = 0;
    } else if (s.is_scan == 0) {
        // Where buckets have next to nothing in them, or steps next to nothing to do, as in long
        // chains, scans would take all the time.
        if (s.bucket_parts < v.graph.vertices / 65536 || s.bucket_parts < 16 * s.bucket_steps)
            s.width = s.width > unreachable / 2 ? unreachable : 2 * s.width;
        else s.width = v.delta;
        begin_bucket(s, s.high);
    } else if (s.least != unreachable) {
        begin_bucket(s, s.least);
    } else if (s.is_suspect != 0) {
        s.is_check = 1;
    } else {
        s.is_done = 1;
    }
    // A bucket has a final vertex at least, or is found empty by its scan; a step within it fixes
    // those that are one edge farther.
    if (s.step >= apps::lesser(4 * v.graph.vertices + 64, std::uint64_t{unreachable}) &&
        s.is_done == 0)
        s.failed = static_cast<std::uint32_t>(fault::endless);
    if (s.failed != 0) s.is_done = 1;
}

// At most so many steps; the search is over when state->is_done.
template <typename Team>
PENSTOCK_D void search(Team& team, const search_view& v, std::uint32_t most_steps) {
    std::uint64_t edges = 0;
    for (std::uint32_t i = 0; i < most_steps; ++i) {
        // None of these changes within a step.
        const search_state& s = *v.state;
        if (s.is_done != 0) break;
        const std::uint32_t current = s.current, other = current ^ 1, high = s.high;
        if (s.is_check != 0) check_for_too_far(team, v);
        else if (s.is_scan != 0) scan_vertices(team, v, s.low, high, other);
        else
            edges += follow_edges(team, v, v.queues[current], s.counts[current], high, other,
                                  static_cast<std::uint32_t>(s.step + 1));
        team.sync();
        if (team.is_first()) advance(v);
        team.sync();
    }
    team.add_for_all(&v.state->edges, edges);
}

}  // namespace penstock::sssp
