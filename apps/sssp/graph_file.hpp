// A graph in a file, looked at before anything is computed.
#pragma once

#include <cstdint>
#include <string>

#include "graph_format.hpp"
#include "penstock/error.hpp"

namespace penstock::sssp {

struct graph_file {
    std::string path;    // as given, for messages
    std::string folder;  // where it really lies, links followed
    std::string name;    // there
    graph_shape shape;

    [[nodiscard]] std::string real_path() const {
        return folder + (folder == "/" ? "" : "/") + name;
    }
};

// Header and size. A negative errno and a message with file, value and cure.
status open_graph(const std::string& path, graph_file& out);

// Reads it all, by so many threads: offsets never go down and end with the number of edges, and
// every target is a vertex.
status check_graph(const graph_file& graph, std::uint32_t threads);

}  // namespace penstock::sssp
