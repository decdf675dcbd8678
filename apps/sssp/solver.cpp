// The solver on CPU threads, and the plain one on one core.
#include "solver.hpp"

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
#include "common/threads.hpp"
#include "penstock/options.hpp"

namespace penstock::sssp {

namespace {

status outcome(const search_state& state) {
    switch (static_cast<fault>(state.failed)) {
        case fault::none: return {};
        case fault::damaged:
            return {-EINVAL,
                    "an edge or an offset is not as it was when the graph was checked; let others "
                    "change nothing but weights meanwhile"};
        case fault::too_far:
            return {
                -EOVERFLOW,
                "a path is longer than 4,294,967,294, the greatest distance; use smaller weights"};
        case fault::endless: break;
    }
    return {-EIO, "the search did not end after " + std::to_string(state.step) +
                      " steps; let no program change weights while it runs"};
}

// The search by CPU threads.

constexpr std::uint32_t steps_of_a_stretch = 64;
constexpr std::uint64_t vertices_at_a_time = 4096, parts_at_a_time = 64, parts_kept = 512;

// One of the threads that search together; it has one lane.
class thread_of_team {
public:
    thread_of_team(std::uint32_t number, std::uint32_t threads, std::barrier<>& all)
        : number_(number), threads_(threads), all_(all) {
        kept_.reserve(parts_kept);
    }

    void sync() { all_.arrive_and_wait(); }
    [[nodiscard]] bool is_first() const { return number_ == 0; }

    template <typename Function>
    void each(std::uint64_t count, const Function& f) const {
        in_stretches(count, vertices_at_a_time, f);
    }
    template <typename Function>
    void each_part(std::uint64_t count, const Function& f) const {
        in_stretches(count, parts_at_a_time, [&](std::uint64_t i) { f(i, 0u, 1u); });
    }

    // Threads that all add to one counter are slow, so parts go to the queue by the hundreds.
    void put(const search_view& v, std::uint32_t queue, std::uint32_t vertex, std::uint32_t parts) {
        for (std::uint32_t number = 0; number < parts; ++number) {
            if (kept_.size() == parts_kept) flush(v, queue);
            kept_.push_back({vertex, number});
        }
    }
    void flush(const search_view& v, std::uint32_t queue) {
        if (kept_.empty()) return;
        const std::uint64_t first =
            fetch_add_relaxed(&v.state->counts[queue], std::uint64_t{kept_.size()});
        if (first + kept_.size() <= v.room)
            std::copy(kept_.begin(), kept_.end(), v.queues[queue] + first);
        else note(v, fault::damaged);
        kept_.clear();
    }
    void lower_for_all(std::uint32_t* word, std::uint32_t value) const { lower(word, value); }
    void add_for_all(std::uint64_t* word, std::uint64_t value) const {
        atomic_add_relaxed(word, value);
    }

private:
    template <typename Function>
    void in_stretches(std::uint64_t count, std::uint64_t length, const Function& f) const {
        for (std::uint64_t first = number_ * length; first < count; first += threads_ * length)
            for (std::uint64_t i = first; i < std::min(first + length, count); ++i) f(i);
    }

    std::uint64_t number_, threads_;
    std::barrier<>& all_;
    std::vector<part> kept_;
};

class cpu_solver final : public solver {
public:
    explicit cpu_solver(const solver_settings& settings)
        : settings_(settings), memory_(apps::make_host_memory()) {}

    status prepare() {
        const graph_shape& shape = settings_.shape;
        view_.room = parts_of(shape);
        view_.delta = settings_.delta;
        view_.state = &state_;
        if (memory_->allocate(view_.distances, shape.vertices) &&
            memory_->allocate(view_.stamps, shape.vertices) &&
            memory_->allocate(view_.queues[0], view_.room) &&
            memory_->allocate(view_.queues[1], view_.room))
            return {};
        return {-ENOMEM, "the search needs " +
                             format_size(8 * shape.vertices + 2 * sizeof(part) * view_.room) +
                             " of memory that is not free; use a smaller graph"};
    }

    status compute(const graph_view& graph, std::uint32_t source) override {
        view_.graph = graph;
        std::memset(view_.distances, 0xff, graph.vertices * sizeof(std::uint32_t));
        std::memset(view_.stamps, 0, graph.vertices * sizeof(std::uint32_t));
        view_.distances[source] = 0;
        state_ = first_state(settings_.delta);
        std::barrier<> all(settings_.threads);
        const auto run_steps = [&]() -> status {
            apps::on_threads(settings_.threads, [&](std::uint32_t number) {
                thread_of_team team(number, settings_.threads, all);
                search(team, view_, steps_of_a_stretch);
            });
            return {};
        };
        return run_search(settings_, run_steps, state_);
    }
    status copy_distances(std::uint32_t* to) override {
        std::memcpy(to, view_.distances, settings_.shape.vertices * sizeof(std::uint32_t));
        return {};
    }
    [[nodiscard]] search_state last() const override { return state_; }

private:
    const solver_settings settings_;
    std::unique_ptr<apps::device_memory> memory_;
    search_view view_{};
    search_state state_{};
};

}  // namespace

status run_search(const solver_settings& settings, const std::function<status()>& run_steps,
                  const search_state& state) {
    while (state.is_done == 0) {
        if (settings.interrupted && settings.interrupted())
            return {-ECANCELED, "interrupted; nothing was written"};
        if (status s = run_steps(); !s) return s;
    }
    return outcome(state);
}

status make_cpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out) {
    auto made = std::make_unique<cpu_solver>(settings);
    if (status s = made->prepare(); !s) return s;
    out = std::move(made);
    return {};
}

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
            const edge& followed = graph.edges[e];
            const std::uint64_t nearer = distance + followed.weight;
            if (nearer >= out[followed.target]) continue;
            out[followed.target] = static_cast<std::uint32_t>(nearer);
            waiting.push({nearer, followed.target});
        }
    }
    return out;
}

}  // namespace penstock::sssp
