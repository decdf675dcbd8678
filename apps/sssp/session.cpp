#include "session.hpp"

#include <cerrno>
#include <unistd.h>

#include "common/message.hpp"
#include "common/random_file.hpp"
#include "common/stopwatch.hpp"
#include "made_numbers.hpp"
#include "report.hpp"
#include "rounds.hpp"

namespace penstock::sssp {

namespace {

backend resolved(const session& s) {
    if (s.asked.settings.where != backend::automatic) return s.asked.settings.where;
    return gpu_is_there(s.asked.settings.device) ? backend::gpu : backend::cpu;
}

status make_solver(session& s, backend where, solver*& out) {
    std::unique_ptr<solver>& kept = where == backend::gpu ? s.gpu : s.cpu;
    if (kept == nullptr) {
        const solver_settings how{s.graph.shape, s.delta, s.asked.threads, s.asked.settings.device,
                                  [] { return was_interrupted(); }};
        if (status failed =
                where == backend::gpu ? make_gpu_solver(how, kept) : make_cpu_solver(how, kept);
            !failed)
            return failed;
    }
    out = kept.get();
    return {};
}

status make_region(session& s, backend where, method_run& m) {
    if (status failed = start_runtime(s.asked, where, s.rt); !failed) return failed;
    s.device_name = s.rt->device_name();
    if (s.asked.run.wants_mount()) {
        if (status failed = s.folder.open(*s.rt, s.graph.folder, s.asked.run.point); !failed)
            return failed;
        s.mounted = true;
    }
    return make_region_place(*s.rt, s.graph, !s.mounted, m.place);
}

status make_place(session& s, backend where, method_run& m) {
    const std::uint32_t threads = s.asked.threads;
    const int device = s.asked.settings.device;
    if (m.name == "penstock") return make_region(s, where, m);
    if (m.name == "managed") return make_managed_place(s.graph, threads, device, m.place);
    if (m.name == "cpu") return make_mapped_place(s.graph, m.place);
    return where == backend::gpu ? make_gpu_copy_place(s.graph, threads, device, m.place)
                                 : make_copy_place(s.graph, threads, m.place);
}

status prepare(session& s) {
    const backend here = resolved(s);
    s.delta = s.asked.run.delta != 0 ? s.asked.run.delta : usual_delta(s.graph.shape, most_weight);
    for (const std::string& name : s.asked.run.methods) {
        method_run& m = s.methods.emplace_back();
        m.name = name;
        const backend where = name == "cpu" ? backend::cpu : here;
        m.backend = name_of(where);
        if (name == "managed" && where == backend::cpu)
            return {
                -EINVAL,
                "--method managed: needs a GPU, and the back end is cpu; leave this method out"};
        if (status failed = make_solver(s, where, m.by); !failed) return failed;
    }
    // A region takes what the others leave, so it is made last.
    for (auto m = s.methods.rbegin(); m != s.methods.rend(); ++m) {
        apps::stopwatch watch;
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        if (status failed =
                make_place(s, m->backend == std::string("gpu") ? backend::gpu : backend::cpu, *m);
            !failed)
            return failed;
        m->start_seconds = watch.lap();
    }
    return {};
}

}  // namespace

status open_files(session& s) {
    const run_request& r = s.asked.run;
    if (status failed = open_graph(r.graph, s.graph); !failed) return failed;
    if (r.source >= s.graph.shape.vertices)
        return {-EINVAL, "--source: there is no vertex " + apps::with_commas(r.source) + " in " +
                             apps::shown(r.graph) + ", which has " +
                             apps::with_commas(s.graph.shape.vertices) + ", counted from 0"};
    if (!r.percents.empty() && ::access(s.graph.real_path().c_str(), W_OK) != 0)
        return {-errno, apps::shown(r.graph) + ": " + error_text(-errno) +
                            "; the updater must be able to write it, or leave --updates out"};
    if (!r.out.empty()) {
        if (apps::same_file(r.out, s.graph.real_path()))
            return {-EINVAL,
                    "-o: " + apps::shown(r.out) + " is the graph itself; give another name"};
        if (status failed = s.out.open(r.out); !failed) return failed;
    }
    return check_graph(s.graph, s.asked.threads);
}

status run_all(session& s) {
    status ended = prepare(s);
    if (ended.ok()) {
        say_methods(s);
        ended = run_rounds(s);
    }
    const status closed = s.folder.close();
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (!ended.ok()) return ended;
    if (!closed.ok() || s.asked.run.out.empty()) return closed;
    if (status failed = s.out.write(reinterpret_cast<const char*>(s.distances.data()),
                                    s.distances.size() * sizeof(std::uint32_t));
        !failed)
        return failed;
    return s.out.commit();
}

}  // namespace penstock::sssp
