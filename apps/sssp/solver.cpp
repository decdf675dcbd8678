// The solver on CPU threads, and the plain one on one core.
#include "solver.hpp"

#include <algorithm>
#include <barrier>
#include <cerrno>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "penstock/options.hpp"

namespace penstock::sssp {

namespace {

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
        : solver(settings, apps::make_host_memory(), "memory") {}

private:
    status run_steps() override {
        std::barrier<> all(settings_.threads);
        apps::on_threads(settings_.threads, [&](std::uint32_t number) {
            thread_of_team team(number, settings_.threads, all);
            search(team, view_, steps_of_a_stretch);
        });
        return {};
    }
};

status not_copied() {
    return {-EIO,
            "the state of the search could not be copied to or from the device; is the GPU "
            "in order?"};
}

}  // namespace

status solver::prepare() {
    const graph_shape& shape = settings_.shape;
    view_.room = parts_of(shape);
    view_.delta = settings_.delta;
    if (memory_->allocate(view_.distances, shape.vertices) &&
        memory_->allocate(view_.stamps, shape.vertices) &&
        memory_->allocate(view_.queues[0], view_.room) &&
        memory_->allocate(view_.queues[1], view_.room) && memory_->allocate(view_.state, 1))
        return {};
    return apps::failure(-ENOMEM, "the search needs ",
                         format_size(8 * shape.vertices + 2 * sizeof(part) * view_.room), " of ",
                         memory_name_, " that is not free; use a smaller graph");
}

status solver::compute(const graph_view& graph, std::uint32_t source) {
    view_.graph = graph;
    state_ = first_state(settings_.delta);
    const std::uint64_t bytes = graph.vertices * sizeof(std::uint32_t);
    const std::uint32_t nearest = 0;
    if (!memory_->fill(view_.distances, 0xff, bytes) || !memory_->fill(view_.stamps, 0, bytes) ||
        !memory_->upload(view_.distances + source, &nearest, sizeof nearest) ||
        !memory_->upload(view_.state, &state_, sizeof state_))
        return not_copied();
    while (state_.is_done == 0) {
        if (settings_.interrupted && settings_.interrupted())
            return {-ECANCELED, "interrupted; nothing was written"};
        if (status s = run_steps(); !s) return s;
        if (!memory_->download(&state_, view_.state, sizeof state_)) return not_copied();
    }
    return outcome();
}

status solver::outcome() const {
    switch (static_cast<fault>(state_.failed)) {
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
    return {-EIO, "the search did not end after " + std::to_string(state_.step) +
                      " steps; let no program change weights while it runs"};
}

status solver::copy_distances(std::uint32_t* to) {
    const std::uint64_t bytes = settings_.shape.vertices * sizeof(std::uint32_t);
    return memory_->download(to, view_.distances, bytes) ? status{} : not_copied();
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
