// A run: makes the methods, and goes through the rounds.
#include "session.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/message.hpp"
#include "made_numbers.hpp"

namespace penstock::sssp {

namespace {

backend resolved(const run_session& s) {
    if (s.settings.where != backend::automatic) return s.settings.where;
    return gpu_is_there(s.settings.device) ? backend::gpu : backend::cpu;
}

status make_solver(run_session& s, backend where, solver*& out) {
    std::unique_ptr<solver>& kept = where == backend::gpu ? s.gpu : s.cpu;
    if (kept == nullptr) {
        const solver_settings settings{s.graph.shape, s.delta, s.threads, s.settings.device,
                                       [] { return was_interrupted(); }};
        if (status failed = where == backend::gpu ? make_gpu_solver(settings, kept)
                                                  : make_cpu_solver(settings, kept);
            !failed)
            return failed;
    }
    out = kept.get();
    return {};
}

// A mount too, if updates go through it.
status start_runtime(run_session& s, backend where) {
    options settings = s.settings;
    settings.where = where;
    // Regions have memory of their own, and nothing else is read here.
    if (!settings.cache_bytes) settings.cache_bytes = std::uint64_t{64} << 20;
    if (status failed = apps::create_runtime(settings, s.common.quiet, s.rt); !failed)
        return failed;
    s.device_name = s.rt->device_name();
    if (!s.wants_mount()) return {};
    if (status failed = s.folder.open(*s.rt, s.graph.folder, s.point); !failed) return failed;
    s.mounted = true;
    return {};
}

status make_place(run_session& s, method_run& m) {
    const std::uint32_t threads = s.threads;
    const int device = s.settings.device;
    if (m.name == "penstock") {
        if (status failed = start_runtime(s, m.where); !failed) return failed;
        m.place = make_region_place(*s.rt, s.graph, !s.mounted);
    } else if (m.name == "managed") {
        m.place = make_managed_place(s.graph, threads, device);
    } else if (m.name == "cpu") {
        m.place = make_mapped_place(s.graph);
    } else {
        m.place = m.where == backend::gpu ? make_gpu_copy_place(s.graph, threads, device)
                                          : make_copy_place(s.graph, threads);
    }
    return m.place->open();
}

status prepare(run_session& s) {
    const backend here = resolved(s);
    if (s.delta == 0) s.delta = usual_delta(s.graph.shape, most_weight);
    for (const std::string& name : s.names) {
        method_run& m = s.methods.emplace_back();
        m.name = name;
        m.where = name == "cpu" ? backend::cpu : here;
        if (name == "managed" && m.where == backend::cpu)
            return {
                -EINVAL,
                "--method managed: needs a GPU, and the back end is cpu; leave this method out"};
        if (status failed = make_solver(s, m.where, m.by); !failed) return failed;
    }
    // A region takes what the others leave, so it is made last.
    for (auto m = s.methods.rbegin(); m != s.methods.rend(); ++m) {
        apps::stopwatch watch;
        if (status failed = apps::not_interrupted(); !failed) return failed;
        if (status failed = make_place(s, *m); !failed) return failed;
        m->start_seconds = watch.lap();
    }
    return {};
}

using distances = std::vector<std::uint32_t>;

std::string name_of_distance(std::uint32_t distance) {
    return distance == unreachable ? "none" : apps::with_commas(distance);
}

status compare(const run_session& s, const std::string& base_name, const distances& base,
               const std::string& other_name, const distances& other) {
    const auto [first, second] = std::mismatch(base.begin(), base.end(), other.begin());
    if (first == base.end()) return {};
    return apps::failure(
        -EIO, apps::shown(s.graph.path), ": the distance of vertex ", first - base.begin(), " is ",
        name_of_distance(*first), " by ", base_name, " and ", name_of_distance(*second), " by ",
        other_name,
        "; let no other program write the graph meanwhile, and if none does, report this");
}

class all_rounds {
public:
    explicit all_rounds(run_session& s) : s_(s), other_(s.graph.shape.vertices) {
        s.distances.resize(s.graph.shape.vertices);
    }

    status run() {
        const std::uint64_t total = 1 + s_.rounds * std::max<std::uint64_t>(s_.percents.size(), 1);
        const apps::progress bar(
            "rounds", total, [this] { return done_.load(); }, !s_.common.quiet);
        if (status failed = compute_all([](method_run& m) -> round_times& { return m.first; });
            !failed)
            return failed;
        if (s_.percents.empty())
            if (status failed = rounds_of(-1); !failed) return failed;
        for (const double percent : s_.percents)
            if (status failed = rounds_of(percent); !failed) return failed;
        summarise();
        return {};
    }

private:
    // By each method, with what is in the file now. The first one's distances are the others'
    // measure.
    template <typename TimesOf>
    status compute_all(const TimesOf& times_of) {
        for (method_run& m : s_.methods) {
            if (status failed = apps::not_interrupted(); !failed) return failed;
            round_times& times = times_of(m);
            apps::stopwatch watch;
            if (status failed = m.place->refresh(times.pages); !failed) return failed;
            times.data_seconds = watch.lap();
            if (status failed = m.by->compute(view_of(m.place->data(), s_.graph.shape),
                                              static_cast<std::uint32_t>(s_.source));
                !failed)
                return {failed.code,
                        apps::shown(s_.graph.path) + ": " + m.name + ": " + failed.message};
            times.compute_seconds = watch.lap();
            times.edges = m.by->last().edges;
            times.steps = m.by->last().step;
            const bool is_first = &m == &s_.methods.front();
            if (status failed =
                    m.by->copy_distances(is_first ? s_.distances.data() : other_.data());
                !failed)
                return failed;
            if (is_first) continue;
            if (status failed = compare(s_, s_.methods.front().name, s_.distances, m.name, other_);
                !failed)
                return failed;
        }
        ++done_;
        return s_.checks ? check_plainly() : status{};
    }

    status check_plainly() {
        apps::mapped_file file;
        if (status failed = file.open(s_.graph.real_path(), s_.graph.shape.file_bytes()); !failed)
            return failed;
        const distances plain = plain_distances(
            view_of(reinterpret_cast<const std::byte*>(file.data()), s_.graph.shape),
            static_cast<std::uint32_t>(s_.source));
        ++s_.checked;
        return compare(s_, s_.methods.front().name, s_.distances, "Dijkstra's algorithm", plain);
    }

    // A negative percent: no updater runs.
    status rounds_of(double percent) {
        update_run& u = s_.updates.emplace_back();
        u.percent = percent;
        u.methods.resize(s_.methods.size());
        for (std::uint32_t i = 0; i < s_.rounds; ++i) {
            ++s_.rounds_done;
            if (percent >= 0)
                if (status failed = update(u); !failed) return failed;
            before_ = s_.distances;
            if (status failed = compute_all([&](method_run& m) -> round_times& {
                    return u.methods[static_cast<std::size_t>(&m - s_.methods.data())]
                        .emplace_back();
                });
                !failed)
                return failed;
            std::uint64_t changed = 0;
            for (std::size_t v = 0; v < before_.size(); ++v)
                changed += before_[v] != s_.distances[v] ? 1 : 0;
            u.changed.push_back(changed);
        }
        say_update(s_, u);
        return {};
    }
    status update(update_run& u) {
        update_request asked;
        asked.file = s_.mounted ? s_.folder.point() + "/" + s_.graph.name : s_.graph.real_path();
        asked.percent = u.percent;
        asked.seed = s_.seed;
        asked.round = s_.rounds_done;
        asked.by_store = s_.update_by == "store";
        asked.threads = s_.threads;
        u.pages =
            page_choice(s_.graph.shape.edge_pages(), u.percent, asked.seed, asked.round).count();
        apps::stopwatch watch;
        const status ended = run_updater(asked, [] { return was_interrupted(); });
        u.update_seconds.push_back(watch.lap());
        return ended;
    }

    void summarise() {
        for (const std::uint32_t distance : s_.distances)
            if (distance != unreachable) {
                ++s_.reached;
                s_.farthest = std::max<std::uint64_t>(s_.farthest, distance);
            }
    }

    run_session& s_;
    distances other_, before_;
    std::atomic<std::uint64_t> done_{0};
};

}  // namespace

status run_all(run_session& s) {
    status ended = prepare(s);
    if (ended.ok()) {
        say_methods(s);
        ended = all_rounds(s).run();
    }
    const status closed = s.folder.close();
    if (status failed = apps::not_interrupted(); !failed) return failed;
    if (!ended.ok()) return ended;
    if (!closed.ok() || s.out_path.empty()) return closed;
    if (status failed = s.out.write(reinterpret_cast<const char*>(s.distances.data()),
                                    s.distances.size() * sizeof(std::uint32_t));
        !failed)
        return failed;
    return s.out.commit();
}

}  // namespace penstock::sssp
