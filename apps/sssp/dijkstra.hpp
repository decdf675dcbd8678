// The distances as the textbook finds them, on one core, to check the others by (Dijkstra, 1959).
#pragma once

#include <cstdint>
#include <vector>

#include "graph_format.hpp"

namespace penstock::sssp {

std::vector<std::uint32_t> plain_distances(const graph_view& graph, std::uint32_t source);

}  // namespace penstock::sssp
