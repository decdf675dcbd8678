#include "dijkstra.hpp"

#include <functional>
#include <queue>
#include <utility>

namespace penstock::sssp {

std::vector<std::uint32_t> plain_distances(const graph_view& graph, std::uint32_t source) {
    using place = std::pair<std::uint64_t, std::uint32_t>;  // distance and vertex
    std::vector<std::uint32_t> out(graph.vertices, unreachable);
    std::priority_queue<place, std::vector<place>, std::greater<>> waiting;
    out[source] = 0;
    waiting.push({0, source});
    while (!waiting.empty()) {
        const auto [distance, vertex] = waiting.top();
        waiting.pop();
        if (distance > out[vertex]) continue;
        for (std::uint64_t e = graph.offsets[vertex]; e < graph.offsets[vertex + std::uint64_t{1}];
             ++e) {
            const edge& one = graph.edges[e];
            const std::uint64_t nearer = distance + one.weight;
            if (nearer >= out[one.target]) continue;
            out[one.target] = static_cast<std::uint32_t>(nearer);
            waiting.push({nearer, one.target});
        }
    }
    return out;
}

}  // namespace penstock::sssp
