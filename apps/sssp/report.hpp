// A run of the program, its rounds, and the report of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "graph_file.hpp"
#include "graph_place.hpp"
#include "mounted_folder.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"
#include "request.hpp"
#include "solver.hpp"

namespace penstock::sssp {

struct round_times {
    double data_seconds = 0;  // until what was changed is where it is computed with
    double compute_seconds = 0;
    std::uint64_t pages = 0;  // that were brought
    std::uint64_t edges = 0;  // that were looked at
    std::uint64_t steps = 0;
};

struct method_run {
    std::string name;
    std::string backend;
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
    std::vector<std::vector<round_times>> methods;  // of each, of each round
};

// One run: the graph, what the methods keep, and what each of them took in each round.
struct session {
    request asked;
    graph_file graph;
    apps::output_file out;
    std::uint32_t delta = 1;
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

// Graph and output are looked at before any work is done.
status open_files(session& s);

// Memory, runtime and mount; then all rounds. What was mounted is gone when it returns.
status run_all(session& s);

// The rounds of a run: an update, then every method with the same weights; what they find is
// compared. Fills the session's report. The distances of the last round stay in it.
status run_rounds(session& s);

// What the program prints: the JSON object, the summary.

// While a run goes on, in words on standard error, unless quiet: what computes, and what each
// percentage took.
void say_methods(const session& s);
void say_update(const session& s, const update_run& u);

// At the end: the object on standard output, if asked for, and the rest of the words.
status report(const session& s);
status report(const request& asked, const make_report& made);

}  // namespace penstock::sssp
