// A run: makes the methods, and goes through the rounds.
#include "session.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <numeric>

#include "common/message.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {

namespace {

status make_solver(run_session& run, backend where, solver*& out) {
    const bool on_gpu = where == backend::gpu;
    std::unique_ptr<solver>& kept = on_gpu ? run.gpu : run.cpu;
    const solver_settings settings{run.graph.shape, run.delta, run.threads, run.settings.device,
                                   [] { return was_interrupted(); }};
    if (kept == nullptr)
        if (status s = (on_gpu ? make_gpu_solver : make_cpu_solver)(settings, kept); !s) return s;
    out = kept.get();
    return {};
}

// A mount too, if updates go through it.
status start_runtime(run_session& run, backend where) {
    options settings = run.settings;
    settings.where = where;
    // Regions have memory of their own, and nothing else is read here.
    if (!settings.cache_bytes) settings.cache_bytes = std::uint64_t{64} << 20;
    if (status s = apps::create_runtime(settings, run.common.quiet, run.rt); !s) return s;
    run.device_name = run.rt->device_name();
    if (!run.wants_mount()) return {};
    if (status s = run.folder.open(*run.rt, run.graph.folder, run.point); !s) return s;
    run.mounted = true;
    return {};
}

status open_place(run_session& run, method_run& m) {
    if (m.name == "penstock") {
        if (status s = start_runtime(run, m.where); !s) return s;
        m.place = make_region_place(*run.rt, run.graph, !run.mounted);
    } else {
        m.place = make_place(m.name, run.graph,
                             {run.threads, m.where == backend::gpu, run.settings.device});
    }
    return m.place->open();
}

status prepare(run_session& run) {
    backend here = run.settings.where;
    if (here == backend::automatic)
        here = gpu_is_there(run.settings.device) ? backend::gpu : backend::cpu;
    if (run.delta == 0) run.delta = usual_delta(run.graph.shape, most_weight);
    for (const std::string& name : run.names) {
        method_run& m = run.methods.emplace_back();
        m.name = name;
        m.where = name == "cpu" ? backend::cpu : here;
        if (name == "managed" && m.where == backend::cpu)
            return {
                -EINVAL,
                "--method managed: needs a GPU, and the back end is cpu; leave this method out"};
        if (status s = make_solver(run, m.where, m.by); !s) return s;
    }
    // A region takes what the others leave, so it is made last.
    for (auto m = run.methods.rbegin(); m != run.methods.rend(); ++m) {
        apps::stopwatch watch;
        if (status s = apps::not_interrupted(); !s) return s;
        if (status s = open_place(run, *m); !s) return s;
        m->start_seconds = watch.lap();
    }
    return {};
}

using distances = std::vector<std::uint32_t>;

std::string name_of_distance(std::uint32_t distance) {
    return distance == unreachable ? "none" : apps::with_commas(distance);
}

class all_rounds {
public:
    explicit all_rounds(run_session& run)
        : run_(run), shape_(run.graph.shape), other_(shape_.vertices) {
        run.distances.resize(shape_.vertices);
    }

    status run() {
        const std::vector<double>& percents = run_.percents;
        const std::uint64_t total = 1 + run_.rounds * std::max<std::uint64_t>(percents.size(), 1);
        const apps::progress bar(
            "rounds", total, [this] { return done_.load(); }, !run_.common.quiet);
        if (status s = compute_all(nullptr); !s) return s;
        if (percents.empty())
            if (status s = rounds_of(-1); !s) return s;
        for (const double percent : percents)
            if (status s = rounds_of(percent); !s) return s;
        for (const std::uint32_t distance : run_.distances) {
            if (distance == unreachable) continue;
            ++run_.reached;
            run_.farthest = std::max<std::uint64_t>(run_.farthest, distance);
        }
        return {};
    }

private:
    // By each method, with what is in the file now: a round of these updates, or the first before
    // any update.
    status compute_all(update_run* u) {
        for (std::size_t i = 0; i < run_.methods.size(); ++i) {
            method_run& m = run_.methods[i];
            if (status s = apps::not_interrupted(); !s) return s;
            if (status s = compute(m, u == nullptr ? m.first : u->methods[i]); !s) return s;
            // The first one's distances are the others' measure.
            distances& found = i == 0 ? run_.distances : other_;
            if (status s = m.by->copy_distances(found.data()); !s) return s;
            if (i == 0) continue;
            if (status s = compare(m.name, found); !s) return s;
        }
        ++done_;
        return run_.checks ? check_plainly() : status{};
    }

    status compute(method_run& m, round_times& times) const {
        apps::stopwatch watch;
        if (status s = m.place->refresh(times.pages.emplace_back()); !s) return s;
        times.data_seconds.push_back(watch.lap());
        if (status s = m.by->compute(view_of(m.place->data(), shape_), source()); !s)
            return {s.code,
                    apps::words(apps::shown(run_.graph.path), ": ", m.name, ": ", s.message)};
        times.compute_seconds.push_back(watch.lap());
        times.edges.push_back(m.by->last().edges);
        times.steps.push_back(m.by->last().step);
        return {};
    }
    [[nodiscard]] std::uint32_t source() const { return static_cast<std::uint32_t>(run_.source); }

    status compare(const std::string& name, const distances& found) const {
        const distances& base = run_.distances;
        const auto [first, second] = std::mismatch(base.begin(), base.end(), found.begin());
        if (first == base.end()) return {};
        return apps::failure(
            -EIO, apps::shown(run_.graph.path), ": the distance of vertex ", first - base.begin(),
            " is ", name_of_distance(*first), " by ", run_.methods.front().name, " and ",
            name_of_distance(*second), " by ", name,
            "; let no other program write the graph meanwhile, and if none does, report this");
    }

    status check_plainly() {
        apps::mapped_file file;
        if (status s = file.open(run_.graph.real_path(), shape_.file_bytes()); !s) return s;
        const auto* const bytes = reinterpret_cast<const std::byte*>(file.data());
        ++run_.checked;
        return compare("Dijkstra's algorithm", plain_distances(view_of(bytes, shape_), source()));
    }

    // A negative percent: no updater runs.
    status rounds_of(double percent) {
        update_run& u = run_.updates.emplace_back();
        u.percent = percent;
        u.methods.resize(run_.methods.size());
        for (std::uint32_t i = 0; i < run_.rounds; ++i) {
            ++run_.rounds_done;
            if (percent >= 0)
                if (status s = update(u); !s) return s;
            const distances before = run_.distances;
            if (status s = compute_all(&u); !s) return s;
            u.changed.push_back(std::inner_product(before.begin(), before.end(),
                                                   run_.distances.begin(), std::uint64_t{0},
                                                   std::plus<>(), std::not_equal_to<>()));
        }
        say_update(run_, u);
        return {};
    }
    status update(update_run& u) {
        update_request asked;
        asked.file =
            run_.mounted ? run_.folder.point() + "/" + run_.graph.name : run_.graph.real_path();
        asked.percent = u.percent;
        asked.seed = run_.seed;
        asked.round = run_.rounds_done;
        asked.by_store = run_.update_by == "store";
        asked.threads = run_.threads;
        u.pages = page_choice(shape_.edge_pages(), u.percent, asked.seed, asked.round).count();
        apps::stopwatch watch;
        const status ended = run_updater(asked);
        u.update_seconds.push_back(watch.lap());
        return ended;
    }

    run_session& run_;
    const graph_shape& shape_;
    distances other_;
    std::atomic<std::uint64_t> done_{0};
};

}  // namespace

status run_all(run_session& run) {
    status ended = prepare(run);
    if (ended.ok()) {
        say_methods(run);
        ended = all_rounds(run).run();
    }
    const status closed = run.folder.close();
    if (status s = apps::not_interrupted(); !s) return s;
    if (!ended.ok()) return ended;
    if (!closed.ok() || run.out_path.empty()) return closed;
    const auto* const bytes = reinterpret_cast<const char*>(run.distances.data());
    if (status s = run.out.write(bytes, run.distances.size() * sizeof(std::uint32_t)); !s) return s;
    return run.out.commit();
}

}  // namespace penstock::sssp
