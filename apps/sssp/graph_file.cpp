// Checks the file of a graph, and makes a graph that the seed alone decides.
#include "graph_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <vector>

#include "common/files.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {

namespace {

constexpr const char* again = "; make the graph again, or copy it again";
constexpr std::uint64_t checked_at_once = 1u << 19;

// A pipe must not hold up the program.
apps::unique_fd opened(const std::string& path) {
    return apps::unique_fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

status wrong(const graph_file& graph, const std::string& defect) {
    return {-EINVAL, apps::shown(graph.path) + ": " + defect + again};
}

status check_header(const graph_header& header, std::uint64_t size, graph_file& out) {
    if (std::memcmp(header.magic, graph_magic, sizeof graph_magic) != 0)
        return {-EINVAL, apps::shown(out.path) +
                             ": is no graph of this program, for it does not begin with PSTKSSSP; "
                             "make one with penstock-sssp make"};
    if (header.version != graph_version)
        return wrong(out, "has version " + std::to_string(header.version) +
                              ", and this program reads version " + std::to_string(graph_version));
    if (header.vertices == 0 || header.vertices > most_vertices || header.edges > most_edges)
        return wrong(out, "says that it has " + apps::with_commas(header.vertices) +
                              " vertices and " + apps::with_commas(header.edges) +
                              " edges, which cannot be");
    out.shape = {header.vertices, header.edges};
    if (header.header_bytes != page_bytes || header.offsets_at != out.shape.offsets_at() ||
        header.edges_at != out.shape.edges_at() || header.file_bytes != out.shape.file_bytes())
        return wrong(out, "its header does not say where a graph of " +
                              apps::with_commas(header.vertices) + " vertices and " +
                              apps::with_commas(header.edges) + " edges lies");
    if (size != header.file_bytes)
        return wrong(out, "has " + apps::with_commas(size) + " bytes, and its header says " +
                              apps::with_commas(header.file_bytes));
    return {};
}

// One thread's part of looking through the file.
class checker {
public:
    checker(const graph_file& graph, int fd) : graph_(graph), fd_(fd) {}

    // Numbers [first, end) of the offsets, and the one after them.
    status offsets(std::uint64_t first, std::uint64_t end) {
        offsets_.resize(end - first + 1);
        if (status s = read(offsets_.data(), offsets_.size() * sizeof(std::uint64_t),
                            graph_.shape.offsets_at() + first * sizeof(std::uint64_t));
            !s)
            return s;
        if (first == 0 && offsets_[0] != 0)
            return wrong(graph_, "the edges of vertex 0 begin at edge " +
                                     apps::with_commas(offsets_[0]) + " and not at edge 0");
        for (std::uint64_t v = first; v < end; ++v)
            if (offsets_[v - first] > offsets_[v - first + 1])
                return wrong(
                    graph_, "the edges of vertex " + apps::with_commas(v) + " end at edge " +
                                apps::with_commas(offsets_[v - first + 1]) +
                                ", before they begin at " + apps::with_commas(offsets_[v - first]));
        if (end == graph_.shape.vertices && offsets_.back() != graph_.shape.edges)
            return wrong(graph_, "the edges of the last vertex end at edge " +
                                     apps::with_commas(offsets_.back()) + " of " +
                                     apps::with_commas(graph_.shape.edges));
        return {};
    }
    status edges(std::uint64_t first, std::uint64_t end) {
        edges_.resize(end - first);
        if (status s = read(edges_.data(), edges_.size() * sizeof(edge),
                            graph_.shape.edges_at() + first * sizeof(edge));
            !s)
            return s;
        for (std::uint64_t e = first; e < end; ++e)
            if (edges_[e - first].target >= graph_.shape.vertices)
                return wrong(graph_, "edge " + apps::with_commas(e) + " leads to vertex " +
                                         apps::with_commas(edges_[e - first].target) + " of " +
                                         apps::with_commas(graph_.shape.vertices) +
                                         ", counted from 0");
        return {};
    }

private:
    status read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_exactly(graph_.path, fd_, to, bytes, offset);
    }

    const graph_file& graph_;
    int fd_;
    std::vector<std::uint64_t> offsets_;
    std::vector<edge> edges_;
};

__extension__ typedef unsigned __int128 wide;

constexpr std::uint64_t piece_numbers = 1u << 20;

class graph_maker {
public:
    graph_maker(const make_request& asked, const apps::output_file& out)
        : asked_(asked), out_(out) {}

    status run(make_report& report) {
        const graph_shape& shape = asked_.shape;
        const apps::progress bar(
            "make", shape.file_bytes(), [this] { return written_.load(); }, !asked_.quiet);
        if (status s = write_header(); !s) return s;
        if (status s = count_shares(); !s) return s;
        if (status s = write_offsets(); !s) return s;
        report.most_edges_of_a_vertex = most_edges_;
        return write_edges();
    }

private:
    // body(first, end) on all threads, for all pieces of `count`.
    template <typename Body>
    status each_piece(std::uint64_t count, const Body& body) const {
        const auto threads = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(apps::pieces_of(count, piece_numbers), 1, asked_.threads));
        return apps::on_pieces(threads, count, piece_numbers,
                               [&](std::uint32_t, std::uint64_t first, std::uint64_t length) {
                                   return body(first, first + length);
                               });
    }
    status write(const void* data, std::uint64_t bytes, std::uint64_t offset) {
        status s = out_.write_at(data, bytes, offset);
        written_ += bytes;
        return s;
    }

    status write_header() {
        const graph_shape& shape = asked_.shape;
        char page[page_bytes] = {};
        graph_header header{{},          graph_version,      page_bytes,       shape.vertices,
                            shape.edges, shape.offsets_at(), shape.edges_at(), shape.file_bytes()};
        std::memcpy(header.magic, graph_magic, sizeof header.magic);
        std::memcpy(page, &header, sizeof header);
        if (status s = write(page, sizeof page, 0); !s) return s;
        // The file has its full length; the last page's end is written over unless it is past the
        // last edge.
        return out_.write_at("", 1, shape.file_bytes() - 1);
    }

    // How many shares the vertices before each piece have.
    status count_shares() {
        before_.assign(apps::pieces_of(asked_.shape.vertices, piece_numbers) + 1, 0);
        if (status s = each_piece(asked_.shape.vertices,
                                  [&](std::uint64_t first, std::uint64_t end) {
                                      std::uint64_t sum = 0;
                                      for (std::uint64_t v = first; v < end; ++v)
                                          sum += share_of_edges(asked_.seed, v);
                                      before_[first / piece_numbers + 1] = sum;
                                      return status{};
                                  });
            !s)
            return s;
        for (std::size_t i = 1; i < before_.size(); ++i) before_[i] += before_[i - 1];
        return {};
    }
    [[nodiscard]] std::uint64_t offset_of(std::uint64_t shares) const {
        return static_cast<std::uint64_t>(wide{asked_.shape.edges} * shares / before_.back());
    }

    // A vertex's edges begin where its shares do.
    status write_offsets() {
        std::atomic<std::uint64_t> most{0};
        status s = each_piece(asked_.shape.vertices, [&](std::uint64_t first, std::uint64_t end) {
            std::vector<std::uint64_t> offsets(end - first + 1);
            std::uint64_t shares = before_[first / piece_numbers], own_most = 0;
            offsets[0] = offset_of(shares);
            for (std::uint64_t v = first; v < end; ++v) {
                shares += share_of_edges(asked_.seed, v);
                offsets[v - first + 1] = offset_of(shares);
                own_most = std::max(own_most, offsets[v - first + 1] - offsets[v - first]);
            }
            for (std::uint64_t seen = most.load();
                 seen < own_most && !most.compare_exchange_weak(seen, own_most);) {
            }
            // The last number is the next piece's first, or the end of all.
            const std::uint64_t count =
                end == asked_.shape.vertices ? offsets.size() : offsets.size() - 1;
            return write(offsets.data(), count * sizeof(std::uint64_t),
                         asked_.shape.offsets_at() + first * sizeof(std::uint64_t));
        });
        most_edges_ = most.load();
        return s;
    }

    status write_edges() {
        const made_targets targets(asked_.seed, asked_.shape.vertices);
        const std::uint64_t weights = weights_of_round(asked_.seed, 0);
        return each_piece(asked_.shape.edges, [&](std::uint64_t first, std::uint64_t end) {
            std::vector<edge> edges(end - first);
            for (std::uint64_t e = first; e < end; ++e)
                edges[e - first] = {targets.of(e), weight_of(weights, e)};
            return write(edges.data(), edges.size() * sizeof(edge),
                         asked_.shape.edges_at() + first * sizeof(edge));
        });
    }

    const make_request& asked_;
    const apps::output_file& out_;
    std::vector<std::uint64_t> before_;
    std::uint64_t most_edges_ = 0;
    std::atomic<std::uint64_t> written_{0};
};

}  // namespace

status open_graph(const std::string& path, graph_file& out) {
    out.path = path;
    const std::string cure = "name a graph that can be read, or make one with penstock-sssp make";
    struct stat info {};
    if (status s = apps::look_at_input(path, cure, info); !s) return s;
    const apps::unique_fd fd = opened(path);
    const int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno : 0;
    if (code != 0) return {code, apps::shown(path) + ": " + error_text(code) + "; " + cure};
    const auto size = static_cast<std::uint64_t>(info.st_size);
    graph_header header{};
    if (size < page_bytes)
        return wrong(out, "has " + apps::with_commas(size) + " bytes, less than a header");
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
    const apps::unique_fd fd = opened(graph.real_path());
    if (fd < 0)
        return {-errno, apps::shown(graph.path) + ": " + error_text(-errno) +
                            "; name a graph that can be read"};
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

status make_graph(const make_request& asked, make_report& report) {
    apps::stopwatch watch;
    apps::output_file out;
    if (status s = out.open_named(asked.out); !s) return s;
    graph_maker maker(asked, out);
    if (status s = maker.run(report); !s) return s;
    if (status s = out.commit(); !s) return s;
    report.seconds = watch.lap();
    return {};
}

}  // namespace penstock::sssp
