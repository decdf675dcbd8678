// The commands of penstock-sssp: the rounds of a run, and making a graph; and the programs that
// change the graph meanwhile: the mount that they go through, and the updater.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/program.hpp"
#include "common/process.hpp"
#include "graph_place.hpp"
#include "penstock/mount.hpp"
#include "solver.hpp"

namespace penstock::sssp {

// The folder of the graph as other programs see it while this one runs: through a mount of this
// process.
class mounted_folder {
public:
    mounted_folder();
    // As close(), and says what went wrong.
    ~mounted_folder();
    mounted_folder(const mounted_folder&) = delete;
    mounted_folder& operator=(const mounted_folder&) = delete;

    // At `point`, an empty folder; "": one of its own, which goes with the mount. The message names
    // the cure.
    status open(runtime& rt, const std::string& folder, const std::string& point);
    // Nothing is mounted after it.
    status close();
    [[nodiscard]] const std::string& point() const { return point_; }

private:
    status make_point(const std::string& folder);

    std::unique_ptr<file_mount> mount_;
    std::string point_;
    bool own_point_ = false;
    apps::leftover noted_mount_, noted_point_;  // for signals
};

// The updater: a program of its own that changes weights in a graph's file, by ordinary system
// calls or by stores to a mapping. It knows nothing of Penstock, of mounts, or of the programs that
// compute with the graph. `penstock-sssp run` starts it and waits for it.

struct update_request {
    std::string file;
    double percent = 0;  // of the pages of the file's edges
    std::uint64_t seed = 1;
    std::uint64_t round = 1;
    bool by_store = false;  // else by write
    std::uint32_t threads = 1;
};

// In the updater: gives every edge of the chosen pages the weight of this round.
status update_weights(const update_request& request);

// In the program that computes: starts the updater as another process and waits for its end, at
// most some minutes. Ends it after an interrupt.
status run_updater(const update_request& request);

// What a method took in each round.
struct round_times {
    std::vector<double> data_seconds;  // until what was changed is where it is computed with
    std::vector<double> compute_seconds;
    std::vector<std::uint64_t> pages;  // that were brought
    std::vector<std::uint64_t> edges;  // that were looked at
    std::vector<std::uint64_t> steps;
};

struct method_run {
    std::string name;
    backend where = backend::cpu;
    double start_seconds = 0;
    std::unique_ptr<graph_place> place;
    solver* by = nullptr;
    round_times first;  // before any update
};

struct update_run {
    double percent = 0;
    std::uint64_t pages = 0;             // that were changed in each round
    std::vector<double> update_seconds;  // of the updater, from its start to its end
    std::vector<std::uint64_t>
        changed;  // vertices whose distance is not what it was in the round before
    std::vector<round_times> methods;  // of each
};

// One run: what was asked for, the graph, what the methods keep, and what each of them took in each
// round.
struct run_session final : apps::command {
    run_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    [[nodiscard]] bool has(const std::string& method) const;
    [[nodiscard]] bool wants_mount() const {
        return !no_mount && !percents.empty() && has("penstock");
    }

    std::string graph_path, out_path;  // out_path: empty for none
    std::string point;                 // empty: a folder of its own
    std::string update_by = "write";
    std::vector<std::string> names = {"penstock"};  // of the methods, each once, penstock first
    std::vector<double> percents;                   // empty: no updater changes the graph
    std::uint64_t source = 0, seed = 1;
    std::uint32_t rounds = 3, threads = 1;
    std::uint32_t delta = 0;  // 0: chosen
    bool no_mount = false, checks = false;

    graph_file graph;
    apps::output_file out;
    std::uint64_t rounds_done = 0;
    std::uint64_t checked = 0;  // rounds whose distances were as Dijkstra's algorithm finds them
    std::uint64_t reached = 0, farthest = 0;
    bool mounted = false;
    std::string device_name;  // of the runtime; empty: there was none
    std::vector<update_run> updates;
    std::vector<std::uint32_t> distances;  // of the last round

    // Members that need others follow them, so that they go first.
    std::unique_ptr<runtime> rt;
    mounted_folder folder;
    std::unique_ptr<solver> gpu, cpu;
    std::vector<method_run> methods;
};

// Memory, runtime and mount; then all rounds: an update, then every method with the same weights;
// what they find is compared. What was mounted is gone when it returns.
status run_all(run_session& run);

// While a run goes on, in words on standard error, unless quiet: what computes, and what each
// percentage took.
void say_methods(const run_session& run);
void say_update(const run_session& run, const update_run& u);

// A graph that the seed alone decides. The file appears whole or not at all.
struct make_session final : apps::command {
    make_session();
    void add_options(apps::option_list& add) override;
    status check() override;
    status run() override;
    [[nodiscard]] nlohmann::json json_of() const override;
    void say_summary() const override;

    std::string out;
    graph_shape shape;
    std::uint64_t seed = 1, most_edges_of_a_vertex = 0;
    std::uint32_t threads = 1;
    double seconds = 0;
};

}  // namespace penstock::sssp
