// penstock-sssp: shortest paths over a graph whose file another program changes. The texts below
// say what it promises.
#include <algorithm>
#include <cerrno>
#include <sstream>
#include <unistd.h>

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/threads.hpp"
#include "session.hpp"

namespace penstock::sssp {

namespace {

constexpr const char* about =
    "Shortest paths from one vertex of a graph in a file, computed again whenever another program "
    "has changed weights in the file.\n";

constexpr const char* details_run =
    "\nWith --updates, another process changes the weights in so many percent of the pages of the "
    "file's edges, before each computation; the file keeps them. It\n"
    "knows nothing of Penstock: it opens the file below a mount that this program makes of the "
    "graph's folder, and writes it. All methods compute with the same\n"
    "weights in turns, and their distances are compared.\n"
    "\nDIST gets a number of 4 bytes for each vertex, 4294967295 for one that no path leads to. It "
    "appears whole or not at all.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

const std::vector<std::string> all_methods = {"penstock", "copy", "managed", "cpu"};
const std::vector<std::string> ways_to_change = {"write", "store"};

apps::range<std::uint64_t> any_number() {
    return {0, UINT64_MAX, "from 0 to " + apps::with_commas(UINT64_MAX)};
}

status read_percents(const std::string& flag, const std::string& text, std::vector<double>& out) {
    out.clear();
    std::istringstream words(text + ",");
    for (std::string word; std::getline(words, word, ',');) {
        if (word.empty()) return {-EINVAL, flag + ": '' is no number from 0 to 100"};
        if (status s = apps::parse_number<double>(flag.c_str(), word, 0, 100, "from 0 to 100",
                                                  out.emplace_back());
            !s)
            return s;
    }
    return {};
}

// Graph and output are looked at before anything is computed.
status open_files(run_session& s) {
    if (status failed = open_graph(s.graph_path, s.graph); !failed) return failed;
    if (s.source >= s.graph.shape.vertices)
        return {-EINVAL, "--source: there is no vertex " + apps::with_commas(s.source) + " in " +
                             apps::shown(s.graph_path) + ", which has " +
                             apps::with_commas(s.graph.shape.vertices) + ", counted from 0"};
    if (!s.percents.empty() && ::access(s.graph.real_path().c_str(), W_OK) != 0)
        return {-errno, apps::shown(s.graph_path) + ": " + error_text(-errno) +
                            "; the updater must be able to write it, or leave --updates out"};
    if (!s.out_path.empty()) {
        if (apps::same_file(s.out_path, s.graph.real_path()))
            return {-EINVAL,
                    "-o: " + apps::shown(s.out_path) + " is the graph itself; give another name"};
        if (status failed = s.out.open(s.out_path); !failed) return failed;
    }
    return check_graph(s.graph, s.threads);
}

}  // namespace

run_session::run_session()
    : command(
          {"run", "Compute the distance of every vertex", details_run, apps::command_kind::run}) {}

void run_session::add_options(apps::option_list& add) {
    add.operand("GRAPH", graph_path, "File of the graph");
    add.number("--source", source, {0, most_vertices - 1, ""},
               "The vertex that the paths begin at; default: 0", "V");
    add.choices(
        "--method", names, all_methods, "method",
        "penstock (a region; only changed pages are brought), or baselines: copy (the whole file "
        "each time), managed (memory that CPU and GPU share, the whole file each time), cpu "
        "(all cores, a memory map); several with commas; default: penstock",
        "NAME[,NAME]");
    add.value("--updates", read_percents, percents,
              "Percent of the pages that are changed before each computation, 0 to 100; "
              "default: nothing is changed",
              "P[,P]");
    add.number("--rounds", rounds, {1, 1000, ""},
               "Computations for each of these, 1 to 1000; default: 3", "K");
    add.choice("--update-by", update_by, ways_to_change, "way to change a file",
               "write (system calls; the default) or store (to a mapping)", "HOW");
    add.number("--seed", seed, any_number(), "Of the weights and pages of updates; default: 1",
               "S");
    add.text("--mount", point,
             "An empty folder for the mount; default: one of its own, among temporary files",
             "DIR");
    add.flag(
        "--no-mount", no_mount,
        "Without FUSE: the updater writes the file itself, and every acquire brings all of it");
    add.number("--delta", delta, {1, 1000000000, ""},
               "Width of a bucket of distances; default: 200, divided by how many edges a "
               "vertex has on average",
               "D");
    add.text("-o,--out", out_path, "File that gets the distances of the last computation", "DIST");
    add.flag("--check", checks,
             "Compare the distances of each round with those that Dijkstra's algorithm finds "
             "on one core");
}

status run_session::check() {
    threads = apps::thread_count(settings.worker_threads);
    std::vector<std::string> ordered;
    for (const std::string& name : all_methods)
        if (has(name)) ordered.push_back(name);
    names = std::move(ordered);
    if (no_mount && !point.empty())
        return {-EINVAL, "--no-mount and --mount " + apps::shown(point) +
                             " exclude each other; give one of them"};
    if (!point.empty() && !wants_mount())
        return {-EINVAL, "--mount: " + apps::shown(point) +
                             " is not needed, for only updates beside the method penstock go "
                             "through a mount; leave it out, or give --updates"};
    return {};
}

status run_session::run() {
    if (status failed = open_files(*this); !failed) return failed;
    return run_all(*this);
}

bool run_session::has(const std::string& method) const {
    return std::find(names.begin(), names.end(), method) != names.end();
}

make_session::make_session()
    : command({"make",
               "Make a graph that the seed alone decides: degrees and targets are uneven, weights "
               "from 1 to 100",
               "", apps::command_kind::make}) {}

void make_session::add_options(apps::option_list& add) {
    add.text("-o,--out", asked.out, "File that gets the graph", "GRAPH").required();
    add.number("--vertices", asked.shape.vertices, {1, most_vertices, ""},
               "Vertices, numbered from 0", "N")
        .required();
    add.number("--edges", asked.shape.edges, {1, most_edges, ""}, "Edges", "M").required();
    add.number("--seed", asked.seed, any_number(), "Of what is made; default: 1", "S");
}

status make_session::check() {
    asked.threads = apps::thread_count(settings.worker_threads);
    asked.quiet = common.quiet;
    return {};
}

status make_session::run() { return make_graph(asked, made); }

update_session::update_session()
    : command({"update", "Change weights", "", apps::command_kind::internal}) {}

void update_session::add_options(apps::option_list& add) {
    constexpr const char* form = "TEXT REQUIRED";
    add.operand("GRAPH", asked.file, "File of the graph");
    add.number("--percent", asked.percent, {0, 100, ""}, "", form).required();
    add.number("--seed", asked.seed, any_number(), "", form).required();
    add.number("--round", asked.round, any_number(), "", form).required();
    add.choice("--by", by, ways_to_change, "way to change a file", "", form).required();
    add.text("--workers", common.workers, "", form).required();
}

status update_session::check() {
    asked.threads = apps::thread_count(settings.worker_threads);
    asked.by_store = by == "store";
    return {};
}

status update_session::run() { return update_weights(asked); }

}  // namespace penstock::sssp

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<sssp::run_session, sssp::make_session, sssp::update_session>(
        {"penstock-sssp", sssp::about, "use a smaller graph"}, argc, argv);
}
