// penstock-sssp: shortest paths over a graph whose file another program changes. Its commands, from
// their options to their reports; the texts below say what it promises.
#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "session.hpp"

namespace penstock::sssp {

namespace {

using apps::median;
using apps::text_of;
using apps::words;
using nlohmann::json;

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

apps::range<std::uint64_t> any_number() { return {0, UINT64_MAX, words("from 0 to ", UINT64_MAX)}; }

status read_percents(const std::string& flag, const std::string& text, std::vector<double>& out) {
    out.clear();
    std::istringstream list(text + ",");
    for (std::string word; std::getline(list, word, ',');) {
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
        return apps::failure(-EINVAL, "--source: there is no vertex ", s.source, " in ",
                             apps::shown(s.graph_path), ", which has ", s.graph.shape.vertices,
                             ", counted from 0");
    if (!s.percents.empty() && ::access(s.graph.real_path().c_str(), W_OK) != 0)
        return {-errno, apps::shown(s.graph_path) + ": " + error_text(-errno) +
                            "; the updater must be able to write it, or leave --updates out"};
    if (!s.out_path.empty()) {
        if (apps::same_file(s.out_path, s.graph.real_path()))
            return {-EINVAL,
                    "-o: " + apps::shown(s.out_path) + " is the graph itself; give another name"};
        if (status failed = apps::check_not_report(s.common.json, s.out_path); !failed)
            return failed;
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
    std::vector<std::string> ordered = all_methods;
    std::erase_if(ordered, [this](const std::string& name) { return !has(name); });
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

// The report of a run.

namespace {

double median_total(const round_times& rounds) {
    std::vector<double> totals = rounds.data_seconds;
    for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += rounds.compute_seconds[i];
    return median(totals);
}

json json_of_rounds(const std::string& name, const round_times& rounds) {
    return {{"method", name},
            {"data_seconds", rounds.data_seconds},
            {"compute_seconds", rounds.compute_seconds},
            {"pages_fetched", rounds.pages},
            {"edges_followed", rounds.edges},
            {"steps", rounds.steps},
            {"median",
             {{"data_seconds", median(rounds.data_seconds)},
              {"compute_seconds", median(rounds.compute_seconds)},
              {"total_seconds", median_total(rounds)}}}};
}

// How much longer the baseline takes than penstock, in all; null where one of them was not asked
// for.
json ratio(const run_session& s, const update_run& u, const char* baseline) {
    double penstock = 0, other = 0;
    for (std::size_t i = 0; i < s.methods.size(); ++i) {
        if (s.methods[i].name == "penstock") penstock = median_total(u.methods[i]);
        if (s.methods[i].name == baseline) other = median_total(u.methods[i]);
    }
    return penstock > 0 && other > 0 ? json(other / penstock) : json(nullptr);
}

json json_of_update(const run_session& s, const update_run& u) {
    json methods = json::array();
    for (std::size_t i = 0; i < s.methods.size(); ++i)
        methods.push_back(json_of_rounds(s.methods[i].name, u.methods[i]));
    return {{"percent", u.percent < 0 ? json(nullptr) : json(u.percent)},
            {"pages_changed", u.pages},
            {"update_seconds", u.update_seconds},
            {"median_update_seconds", median(u.update_seconds)},
            {"distances_changed", u.changed},
            {"methods", methods},
            {"copy_over_penstock", ratio(s, u, "copy")},
            {"managed_over_penstock", ratio(s, u, "managed")},
            {"cpu_over_penstock", ratio(s, u, "cpu")}};
}

std::string line_of(const run_session& s, const update_run& u) {
    std::string line = u.percent < 0 ? "nothing changed"
                                     : words(text_of("%g", u.percent), " % of the pages changed (",
                                             text_of("%.3f s)", median(u.update_seconds)));
    for (std::size_t i = 0; i < s.methods.size(); ++i) {
        const round_times& rounds = u.methods[i];
        line +=
            words(i == 0 ? ": " : "; ", s.methods[i].name, text_of(" %.4f s", median_total(rounds)),
                  text_of(" (data %.4f", median(rounds.data_seconds)),
                  text_of(", compute %.4f)", median(rounds.compute_seconds)));
    }
    const json more = ratio(s, u, "copy");
    if (more.is_null()) return line;
    return line + text_of("; copy takes %.2f times as long as penstock", more.get<double>());
}

}  // namespace

void say_methods(const run_session& s) {
    if (s.common.quiet) return;
    const graph_shape& shape = s.graph.shape;
    apps::say(words(shape.vertices, " vertices, ", shape.edges, " edges, ",
                    format_size(shape.file_bytes())));
    for (const method_run& m : s.methods)
        apps::say(m.name + " on " + name_of(m.where) + ": " + m.place->note() +
                  text_of("; made in %.2f s", m.start_seconds));
}

void say_update(const run_session& s, const update_run& u) {
    if (!s.common.quiet) apps::say(line_of(s, u));
}

json run_session::json_of() const {
    json done = json::array(), changes = json::array();
    for (const method_run& m : methods)
        done.push_back({{"method", m.name},
                        {"backend", name_of(m.where)},
                        {"how", m.place->note()},
                        {"start_seconds", m.start_seconds},
                        {"first_data_seconds", m.first.data_seconds.front()},
                        {"first_compute_seconds", m.first.compute_seconds.front()}});
    for (const update_run& u : updates) changes.push_back(json_of_update(*this, u));
    return {{"graph", graph.path},
            {"vertices", graph.shape.vertices},
            {"edges", graph.shape.edges},
            {"file_bytes", graph.shape.file_bytes()},
            {"source", source},
            {"rounds", rounds},
            {"seed", seed},
            {"delta", delta},
            {"threads", threads},
            {"update_by", percents.empty() ? json(nullptr) : json(update_by)},
            {"mounted", mounted},
            {"device", device_name.empty() ? json(nullptr) : json(device_name)},
            {"methods", done},
            {"updates", changes},
            {"reached", reached},
            {"farthest", farthest},
            {"rounds_checked", checks ? json(checked) : json(nullptr)},
            {"result", out_path.empty() ? json(nullptr) : json(out_path)}};
}

void run_session::say_summary() const {
    apps::say(words(reached, " vertices reached, the farthest at ", farthest));
    if (!percents.empty() && has("penstock") && !mounted)
        apps::say(
            "without a mount the changed pages are not known, so each acquire brought the "
            "whole file");
    if (checks)
        apps::say(words("the distances of ", checked,
                        " rounds are those that Dijkstra's algorithm finds"));
}

make_session::make_session()
    : command({"make",
               "Make a graph that the seed alone decides: degrees and targets are uneven, weights "
               "from 1 to 100",
               "", apps::command_kind::make}) {}

void make_session::add_options(apps::option_list& add) {
    add.text("-o,--out", out, "File that gets the graph", "GRAPH").required();
    add.number("--vertices", shape.vertices, {1, most_vertices, ""}, "Vertices, numbered from 0",
               "N")
        .required();
    add.number("--edges", shape.edges, {1, most_edges, ""}, "Edges", "M").required();
    add.number("--seed", seed, any_number(), "Of what is made; default: 1", "S");
}

status make_session::check() {
    threads = apps::thread_count(settings.worker_threads);
    return apps::check_not_report(common.json, out);
}

json make_session::json_of() const {
    return {{"graph", out},         {"vertices", shape.vertices},
            {"edges", shape.edges}, {"bytes", shape.file_bytes()},
            {"seed", seed},         {"most_edges_of_a_vertex", most_edges_of_a_vertex},
            {"threads", threads},   {"seconds", {{"total", seconds}}}};
}

void make_session::say_summary() const {
    apps::say(words(out, ": ", shape.vertices, " vertices, ", shape.edges, " edges, ",
                    format_size(shape.file_bytes()), " in ", text_of("%.2f s", seconds), " by ",
                    std::to_string(threads), " threads"));
}

namespace {

// In a process of its own, which a run starts (run_updater).
struct update_session final : apps::command {
    update_session() : command({"update", "Change weights", "", apps::command_kind::internal}) {}

    void add_options(apps::option_list& add) override {
        constexpr const char* form = "TEXT REQUIRED";
        add.operand("GRAPH", asked.file, "File of the graph");
        add.number("--percent", asked.percent, {0, 100, ""}, "", form).required();
        add.number("--seed", asked.seed, any_number(), "", form).required();
        add.number("--round", asked.round, any_number(), "", form).required();
        add.choice("--by", by, ways_to_change, "way to change a file", "", form).required();
        add.text("--workers", common.workers, "", form).required();
    }
    status check() override {
        asked.threads = apps::thread_count(settings.worker_threads);
        asked.by_store = by == "store";
        return {};
    }
    status run() override { return update_weights(asked); }

    update_request asked;
    std::string by;
};

}  // namespace

}  // namespace penstock::sssp

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<sssp::run_session, sssp::make_session, sssp::update_session>(
        {"penstock-sssp", sssp::about, "use a smaller graph"}, argc, argv);
}
