// The command make: a graph that the seed alone decides, by all cores.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "made_numbers.hpp"
#include "session.hpp"

namespace penstock::sssp {

namespace {

__extension__ typedef unsigned __int128 wide;

constexpr std::uint64_t piece_numbers = 1u << 20;

class graph_maker {
public:
    graph_maker(make_session& made, const apps::output_file& out) : made_(made), out_(out) {}

    status run() {
        const graph_shape& shape = made_.shape;
        const apps::progress bar(
            "make", shape.file_bytes(), [this] { return written_.load(); }, !made_.common.quiet);
        if (status s = write_header(); !s) return s;
        if (status s = count_shares(); !s) return s;
        if (status s = write_offsets(); !s) return s;
        return write_edges();
    }

private:
    // body(first, end) on all threads, for all pieces of `count`.
    template <typename Body>
    status each_piece(std::uint64_t count, const Body& body) const {
        const auto threads = static_cast<std::uint32_t>(
            std::clamp<std::uint64_t>(apps::pieces_of(count, piece_numbers), 1, made_.threads));
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
        const graph_shape& shape = made_.shape;
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
        before_.assign(apps::pieces_of(made_.shape.vertices, piece_numbers) + 1, 0);
        const auto count = [&](std::uint64_t first, std::uint64_t end) {
            std::uint64_t sum = 0;
            for (std::uint64_t v = first; v < end; ++v) sum += share_of_edges(made_.seed, v);
            before_[first / piece_numbers + 1] = sum;
            return status{};
        };
        if (status s = each_piece(made_.shape.vertices, count); !s) return s;
        std::partial_sum(before_.begin(), before_.end(), before_.begin());
        return {};
    }
    [[nodiscard]] std::uint64_t offset_of(std::uint64_t shares) const {
        return static_cast<std::uint64_t>(wide{made_.shape.edges} * shares / before_.back());
    }

    // A vertex's edges begin where its shares do.
    status write_offsets() {
        std::atomic<std::uint64_t> most{0};
        status s = each_piece(made_.shape.vertices, [&](std::uint64_t first, std::uint64_t end) {
            std::vector<std::uint64_t> offsets(end - first + 1);
            std::uint64_t shares = before_[first / piece_numbers], own_most = 0;
            offsets[0] = offset_of(shares);
            for (std::uint64_t v = first; v < end; ++v) {
                shares += share_of_edges(made_.seed, v);
                offsets[v - first + 1] = offset_of(shares);
                own_most = std::max(own_most, offsets[v - first + 1] - offsets[v - first]);
            }
            for (std::uint64_t seen = most.load();
                 seen < own_most && !most.compare_exchange_weak(seen, own_most);) {
            }
            // The last number is the next piece's first, or the end of all.
            const std::uint64_t count =
                end == made_.shape.vertices ? offsets.size() : offsets.size() - 1;
            return write(offsets.data(), count * sizeof(std::uint64_t),
                         made_.shape.offsets_at() + first * sizeof(std::uint64_t));
        });
        made_.most_edges_of_a_vertex = most.load();
        return s;
    }

    status write_edges() {
        const made_targets targets(made_.seed, made_.shape.vertices);
        const std::uint64_t weights = weights_of_round(made_.seed, 0);
        return each_piece(made_.shape.edges, [&](std::uint64_t first, std::uint64_t end) {
            std::vector<edge> edges(end - first);
            for (std::uint64_t e = first; e < end; ++e)
                edges[e - first] = {targets.of(e), weight_of(weights, e)};
            return write(edges.data(), edges.size() * sizeof(edge),
                         made_.shape.edges_at() + first * sizeof(edge));
        });
    }

    make_session& made_;
    const apps::output_file& out_;
    std::vector<std::uint64_t> before_;
    std::atomic<std::uint64_t> written_{0};
};

}  // namespace

status make_session::run() {
    apps::stopwatch watch;
    if (status s = apps::check_room(out, shape.file_bytes(),
                                    "give fewer vertices and edges, or another place");
        !s)
        return s;
    apps::output_file file;
    if (status s = file.open_named(out); !s) return s;
    graph_maker maker(*this, file);
    if (status s = maker.run(); !s) return s;
    if (status s = file.commit(); !s) return s;
    seconds = watch.lap();
    return {};
}

}  // namespace penstock::sssp
