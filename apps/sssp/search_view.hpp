// What a search for shortest paths works on, as plain pointers that a GPU or CPU threads reach.
#pragma once

#include <cstdint>

#include "graph_file.hpp"

namespace penstock::sssp {

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
    std::uint32_t low, high;  // the bucket: vertices with distances from low on and below high.
                              // Those below low have their final ones
    std::uint32_t width;      // of the next bucket
    std::uint32_t least;      // found by the scan: the least distance from `high` on
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

}  // namespace penstock::sssp
