// A graph's file: its format, and its checks before a search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/files.hpp"
#include "common/work_items.hpp"
#include "penstock/error.hpp"

namespace penstock::sssp {

// The file of a graph: a page of header, the offsets, the edges; each of them begins on a page
// (docs/apps/sssp.md). Numbers are in the byte order of the machine.

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr char graph_magic[8] = {'P', 'S', 'T', 'K', 'S', 'S', 'S', 'P'};
inline constexpr std::uint32_t graph_version = 1;
inline constexpr std::uint64_t most_vertices = 0xfffffffeu, most_edges = std::uint64_t{1} << 39;

// The distance of a vertex that no path leads to.
inline constexpr std::uint32_t unreachable = 0xffffffffu;

// Weights lie between the targets, so that they are in every page of the edges.
struct alignas(8) edge {
    std::uint32_t target;
    std::uint32_t weight;
};
inline constexpr std::uint64_t edges_of_page = page_bytes / sizeof(edge);

struct graph_header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t header_bytes;  // page_bytes
    std::uint64_t vertices;
    std::uint64_t edges;
    std::uint64_t offsets_at;  // places in the file, of vertices + 1 numbers of 8 bytes
    std::uint64_t edges_at;    // and of the edges
    std::uint64_t file_bytes;  // whole pages; what follows the last edge is zero
};
static_assert(sizeof(graph_header) == 56 && sizeof(edge) == 8);

// Where everything lies follows from the two counts.
struct graph_shape {
    std::uint64_t vertices = 0;
    std::uint64_t edges = 0;

    [[nodiscard]] constexpr std::uint64_t offsets_at() const { return page_bytes; }
    [[nodiscard]] constexpr std::uint64_t edges_at() const {
        return page_bytes + pages_for((vertices + 1) * sizeof(std::uint64_t)) * page_bytes;
    }
    [[nodiscard]] constexpr std::uint64_t edge_pages() const {
        return pages_for(edges * sizeof(edge));
    }
    [[nodiscard]] constexpr std::uint64_t file_bytes() const {
        return edges_at() + edge_pages() * page_bytes;
    }

private:
    static constexpr std::uint64_t pages_for(std::uint64_t bytes) {
        return apps::pieces_of(bytes, page_bytes);
    }
};

// A graph wherever its bytes are: in a map, a region, a copy. Plain pointers.
struct graph_view {
    const std::uint64_t* offsets;
    const edge* edges;
    std::uint64_t vertices;
    std::uint64_t edge_count;
};

inline graph_view view_of(const std::byte* file, const graph_shape& shape) {
    return {reinterpret_cast<const std::uint64_t*>(file + shape.offsets_at()),
            reinterpret_cast<const edge*>(file + shape.edges_at()), shape.vertices, shape.edges};
}

// A graph in a file, looked at before anything is computed.
struct graph_file {
    std::string path;    // as given, for messages
    std::string folder;  // where it really lies, links followed
    std::string name;    // there
    graph_shape shape;

    [[nodiscard]] std::string real_path() const {
        return folder + (folder == "/" ? "" : "/") + name;
    }
    // A negative errno and a message if it is not to be opened any more.
    status open(int flags, apps::unique_fd& out) const;
};

// Header and size. A negative errno and a message with file, value and cure.
status open_graph(const std::string& path, graph_file& out);

// Reads it all, by so many threads: offsets never go down and end with the number of edges, and
// every target is a vertex.
status check_graph(const graph_file& graph, std::uint32_t threads);

}  // namespace penstock::sssp
