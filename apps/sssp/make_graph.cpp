#include "make_graph.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <vector>

#include "common/output_file.hpp"
#include "common/progress.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {

namespace {

__extension__ typedef unsigned __int128 wide;

constexpr std::uint64_t made_piece_numbers = 1u << 20;

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
    status each_piece(std::uint64_t count,
                      const std::function<status(std::uint64_t, std::uint64_t)>& body) const {
        std::atomic<std::uint64_t> next{0};
        apps::first_error errors;
        const auto threads = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
            apps::pieces_of(count, made_piece_numbers), 1, asked_.threads));
        apps::on_threads(threads, [&](std::uint32_t) {
            for (std::uint64_t first = next.fetch_add(made_piece_numbers);
                 first < count && !errors.stop(); first = next.fetch_add(made_piece_numbers))
                errors.note(body(first, std::min(first + made_piece_numbers, count)));
        });
        return errors.get();
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
        before_.assign(apps::pieces_of(asked_.shape.vertices, made_piece_numbers) + 1, 0);
        if (status s = each_piece(asked_.shape.vertices,
                                  [&](std::uint64_t first, std::uint64_t end) {
                                      std::uint64_t sum = 0;
                                      for (std::uint64_t v = first; v < end; ++v)
                                          sum += share_of_edges(asked_.seed, v);
                                      before_[first / made_piece_numbers + 1] = sum;
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
            std::uint64_t shares = before_[first / made_piece_numbers], mine = 0;
            offsets[0] = offset_of(shares);
            for (std::uint64_t v = first; v < end; ++v) {
                shares += share_of_edges(asked_.seed, v);
                offsets[v - first + 1] = offset_of(shares);
                mine = std::max(mine, offsets[v - first + 1] - offsets[v - first]);
            }
            for (std::uint64_t seen = most.load();
                 seen < mine && !most.compare_exchange_weak(seen, mine);) {
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
