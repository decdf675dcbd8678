// Checks the file of a graph.
#include "graph_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "os/patient_open.hpp"

namespace penstock::sssp {

namespace {

constexpr const char* again = "; make the graph again, or copy it again";
constexpr std::uint64_t checked_at_once = 1u << 19;

// A pipe must not hold up the program.
constexpr int without_waiting = O_RDONLY | O_NONBLOCK;

template <typename... Parts>
status wrong(const graph_file& graph, const Parts&... defect) {
    return apps::failure(-EINVAL, apps::shown(graph.path), ": ", defect..., again);
}

status check_header(const graph_header& header, std::uint64_t size, graph_file& out) {
    if (std::memcmp(header.magic, graph_magic, sizeof graph_magic) != 0)
        return {-EINVAL, apps::shown(out.path) +
                             ": is no graph of this program, for it does not begin with PSTKSSSP; "
                             "make one with penstock-sssp make"};
    if (header.version != graph_version)
        return wrong(out, "has version ", std::to_string(header.version),
                     ", and this program reads version ", graph_version);
    if (header.vertices == 0 || header.vertices > most_vertices || header.edges > most_edges)
        return wrong(out, "says that it has ", header.vertices, " vertices and ", header.edges,
                     " edges, which cannot be");
    out.shape = {header.vertices, header.edges};
    if (header.header_bytes != page_bytes || header.offsets_at != out.shape.offsets_at() ||
        header.edges_at != out.shape.edges_at() || header.file_bytes != out.shape.file_bytes())
        return wrong(out, "its header does not say where a graph of ", header.vertices,
                     " vertices and ", header.edges, " edges lies");
    if (size != header.file_bytes)
        return wrong(out, "has ", size, " bytes, and its header says ", header.file_bytes);
    return {};
}

// One thread's part of looking through the file.
class checker {
public:
    checker(const graph_file& graph, int fd) : graph_(graph), fd_(fd) {}

    // Numbers [first, end) of the offsets, and the one after them.
    status offsets(std::uint64_t first, std::uint64_t end) {
        offsets_.resize(end - first + 1);
        if (status s = read(offsets_, graph_.shape.offsets_at(), first); !s) return s;
        if (first == 0 && offsets_[0] != 0)
            return wrong(graph_, "the edges of vertex 0 begin at edge ", offsets_[0],
                         " and not at edge 0");
        for (std::uint64_t v = first; v < end; ++v)
            if (offsets_[v - first] > offsets_[v - first + 1])
                return wrong(graph_, "the edges of vertex ", v, " end at edge ",
                             offsets_[v - first + 1], ", before they begin at ",
                             offsets_[v - first]);
        if (end == graph_.shape.vertices && offsets_.back() != graph_.shape.edges)
            return wrong(graph_, "the edges of the last vertex end at edge ", offsets_.back(),
                         " of ", graph_.shape.edges);
        return {};
    }
    status edges(std::uint64_t first, std::uint64_t end) {
        edges_.resize(end - first);
        if (status s = read(edges_, graph_.shape.edges_at(), first); !s) return s;
        for (std::uint64_t e = first; e < end; ++e)
            if (edges_[e - first].target >= graph_.shape.vertices)
                return wrong(graph_, "edge ", e, " leads to vertex ", edges_[e - first].target,
                             " of ", graph_.shape.vertices, ", counted from 0");
        return {};
    }

private:
    // From number `first` of those that begin at `offset`.
    template <typename Number>
    status read(std::vector<Number>& to, std::uint64_t offset, std::uint64_t first) const {
        return apps::read_exactly(graph_.path, fd_, to.data(), to.size() * sizeof(Number),
                                  offset + first * sizeof(Number));
    }

    const graph_file& graph_;
    int fd_;
    std::vector<std::uint64_t> offsets_;
    std::vector<edge> edges_;
};

}  // namespace

status graph_file::open(int flags, apps::unique_fd& out) const {
    out =
        apps::unique_fd((flags & O_NONBLOCK) != 0 ? host::open_past_leases(real_path(), flags)
                                                  : ::open(real_path().c_str(), flags | O_CLOEXEC));
    if (out >= 0) return {};
    return {-errno,
            apps::shown(path) + ": " + error_text(-errno) + "; name a graph that can be read"};
}

status open_graph(const std::string& path, graph_file& out) {
    out.path = path;
    const std::string cure = "name a graph that can be read, or make one with penstock-sssp make";
    struct stat info {};
    if (status s = apps::look_at_input(path, cure, info); !s) return s;
    const apps::unique_fd fd(host::open_past_leases(path, without_waiting));
    const int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno : 0;
    if (code != 0) return {code, apps::shown(path) + ": " + error_text(code) + "; " + cure};
    const auto size = static_cast<std::uint64_t>(info.st_size);
    graph_header header{};
    if (size < page_bytes) return wrong(out, "has ", size, " bytes, less than a header");
    if (status s = apps::read_exactly(path, fd, &header, sizeof header, 0); !s) return s;
    if (status s = check_header(header, size, out); !s) return s;
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(path, failed);
    if (failed)
        return {-failed.value(),
                apps::shown(path) + ": " + failed.message() + "; name a graph that can be read"};
    out.folder = real.parent_path().string();
    out.name = real.filename().string();
    return {};
}

status check_graph(const graph_file& graph, std::uint32_t threads) {
    apps::unique_fd fd;
    if (status s = graph.open(without_waiting, fd); !s) return s;
    const std::uint64_t vertex_pieces = apps::pieces_of(graph.shape.vertices, checked_at_once),
                        pieces =
                            vertex_pieces + apps::pieces_of(graph.shape.edges, checked_at_once);
    const auto used = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, pieces));
    std::vector<checker> checkers(used, checker(graph, fd));
    return apps::on_pieces(
        used, pieces, 1, [&](std::uint32_t thread, std::uint64_t i, std::uint64_t) {
            const bool is_edges = i >= vertex_pieces;
            const std::uint64_t first = (is_edges ? i - vertex_pieces : i) * checked_at_once,
                                end = std::min(first + checked_at_once,
                                               is_edges ? graph.shape.edges : graph.shape.vertices);
            return is_edges ? checkers[thread].edges(first, end)
                            : checkers[thread].offsets(first, end);
        });
}

}  // namespace penstock::sssp
