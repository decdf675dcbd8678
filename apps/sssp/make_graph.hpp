// Makes a graph that the seed alone decides, by all cores.
#pragma once

#include <cstdint>
#include <string>

#include "graph_format.hpp"
#include "penstock/error.hpp"

namespace penstock::sssp {

struct make_request {
    std::string out;
    graph_shape shape;
    std::uint64_t seed = 1;
    std::uint32_t threads = 1;
    bool quiet = false;
};

struct make_report {
    double seconds = 0;
    std::uint64_t most_edges_of_a_vertex = 0;
};

// The file appears whole or not at all.
status make_graph(const make_request& asked, make_report& report);

}  // namespace penstock::sssp
