#include "request.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <sstream>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/threads.hpp"
#include "penstock/version.hpp"

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

constexpr const char* all_methods[] = {"penstock", "copy", "managed", "cpu"};

struct texts {
    std::string vertices, edges, seed, source, methods = "penstock", percents, rounds, by, delta,
                                               percent, round;
    bool no_mount = false;
};

void add_run(CLI::App& app, request& out, apps::common_flags& common, texts& given) {
    CLI::App* const run = app.add_subcommand("run", "Compute the distance of every vertex");
    run->footer(details_run);
    run_request& r = out.run;
    run->add_option("GRAPH", r.graph, "File of the graph")->required();
    apps::add_value(*run, "--source", given.source,
                    "The vertex that the paths begin at; default: 0", "V");
    apps::add_value(
        *run, "--method", given.methods,
        "penstock (a region; only changed pages are brought), or baselines: copy (the whole file "
        "each time), managed (memory that CPU and GPU share, the whole file each time), cpu "
        "(all cores, a memory map); several with commas; default: penstock",
        "NAME[,NAME]");
    apps::add_value(*run, "--updates", given.percents,
                    "Percent of the pages that are changed before each computation, 0 to 100; "
                    "default: nothing is changed",
                    "P[,P]");
    apps::add_value(*run, "--rounds", given.rounds,
                    "Computations for each of these, 1 to 1000; default: 3", "K");
    apps::add_value(*run, "--update-by", given.by,
                    "write (system calls; the default) or store (to a mapping)", "HOW");
    apps::add_value(*run, "--seed", given.seed, "Of the weights and pages of updates; default: 1",
                    "S");
    apps::add_value(*run, "--mount", r.point,
                    "An empty folder for the mount; default: one of its own, among temporary files",
                    "DIR");
    run->add_flag(
        "--no-mount", given.no_mount,
        "Without FUSE: the updater writes the file itself, and every acquire brings all of it");
    apps::add_value(*run, "--delta", given.delta,
                    "Width of a bucket of distances; default: 200, divided by how many edges a "
                    "vertex has on average",
                    "D");
    apps::add_value(*run, "-o,--out", r.out, "File that gets the distances of the last computation",
                    "DIST");
    run->add_flag("--check", r.check,
                  "Compare the distances of each round with those that Dijkstra's algorithm finds "
                  "on one core");
    apps::add_common_flags(*run, common);
}

void add_make(CLI::App& app, request& out, apps::common_flags& common, texts& given) {
    CLI::App* const make = app.add_subcommand("make",
                                              "Make a graph that the seed alone decides: degrees "
                                              "and targets are uneven, weights from 1 to 100");
    apps::add_value(*make, "-o,--out", out.make.out, "File that gets the graph", "GRAPH");
    make->get_option("--out")->required();
    apps::add_value(*make, "--vertices", given.vertices, "Vertices, numbered from 0", "N");
    make->get_option("--vertices")->required();
    apps::add_value(*make, "--edges", given.edges, "Edges", "M");
    make->get_option("--edges")->required();
    apps::add_value(*make, "--seed", given.seed, "Of what is made; default: 1", "S");
    apps::add_value(*make, "--workers", common.workers, "Threads; default: one for every processor",
                    "N");
    make->add_flag("--json", common.json, "Print exactly one JSON object on standard output");
    make->add_flag("--quiet", common.quiet, "Print no summary; errors and warnings still appear");
}

// For `run` alone, so that no help shows it.
CLI::App* add_update(CLI::App& app, request& out, apps::common_flags& common, texts& given) {
    CLI::App* const update = app.add_subcommand("update", "Change weights")->group("");
    update->add_option("GRAPH", out.update.file, "File of the graph")->required();
    for (auto& [flag, text] : {std::pair<const char*, std::string*>{"--percent", &given.percent},
                               {"--seed", &given.seed},
                               {"--round", &given.round},
                               {"--by", &given.by},
                               {"--workers", &common.workers}})
        update->add_option(flag, *text)->required();
    return update;
}

template <typename Number>
status whole(const char* flag, const std::string& text, Number least, Number most, Number& out) {
    return apps::parse_number<Number>(
        flag, text, least, most,
        "from " + apps::with_commas(least) + " to " + apps::with_commas(most), out);
}

status percent_of(const char* flag, const std::string& text, double& out) {
    if (text.empty()) return {-EINVAL, std::string(flag) + ": '' is no number from 0 to 100"};
    return apps::parse_number<double>(flag, text, 0, 100, "from 0 to 100", out);
}

status parse_by(const char* flag, const std::string& text, bool& by_store) {
    if (!text.empty() && text != "write" && text != "store")
        return {-EINVAL, std::string(flag) + ": " + apps::shown(text) +
                             " is no way to change a file; give write or store"};
    by_store = text == "store";
    return {};
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    std::istringstream words(text + ",");
    for (std::string word; std::getline(words, word, ',');) out.push_back(word);
    return out;
}

status check_methods(const std::string& text, run_request& out) {
    const std::vector<std::string> wanted = split(text);
    for (const std::string& one : wanted)
        if (std::find(std::begin(all_methods), std::end(all_methods), one) == std::end(all_methods))
            return {
                -EINVAL,
                "--method: " + apps::shown(one) +
                    " is no method; give penstock, copy, managed or cpu, or several with commas"};
    for (const char* one : all_methods)
        if (std::find(wanted.begin(), wanted.end(), one) != wanted.end())
            out.methods.emplace_back(one);
    return {};
}

status check_run(request& out, const texts& given) {
    run_request& r = out.run;
    if (status s = check_methods(given.methods, r); !s) return s;
    if (status s = whole<std::uint64_t>("--source", given.source, 0, most_vertices - 1, r.source);
        !s)
        return s;
    if (status s = whole<std::uint32_t>("--rounds", given.rounds, 1, 1000, r.rounds); !s) return s;
    if (status s = whole<std::uint64_t>("--seed", given.seed, 0, UINT64_MAX, r.seed); !s) return s;
    if (status s = whole<std::uint32_t>("--delta", given.delta, 1, 1000000000, r.delta); !s)
        return s;
    if (!given.percents.empty())
        for (const std::string& one : split(given.percents))
            if (status s = percent_of("--updates", one, r.percents.emplace_back()); !s) return s;
    r.mounts = !given.no_mount;
    if (given.no_mount && !r.point.empty())
        return {-EINVAL, "--no-mount and --mount " + apps::shown(r.point) +
                             " exclude each other; give one of them"};
    if (!r.point.empty() && !r.wants_mount())
        return {-EINVAL, "--mount: " + apps::shown(r.point) +
                             " is not needed, for only updates beside the method penstock go "
                             "through a mount; leave it out, or give --updates"};
    return parse_by("--update-by", given.by, r.by_store);
}

status check_make(request& out, const texts& given) {
    make_request& m = out.make;
    if (status s =
            whole<std::uint64_t>("--vertices", given.vertices, 1, most_vertices, m.shape.vertices);
        !s)
        return s;
    if (status s = whole<std::uint64_t>("--edges", given.edges, 1, most_edges, m.shape.edges); !s)
        return s;
    return whole<std::uint64_t>("--seed", given.seed, 0, UINT64_MAX, m.seed);
}

status check_update(request& out, const texts& given) {
    update_request& u = out.update;
    if (status s = percent_of("--percent", given.percent, u.percent); !s) return s;
    if (status s = whole<std::uint64_t>("--seed", given.seed, 0, UINT64_MAX, u.seed); !s) return s;
    if (status s = whole<std::uint64_t>("--round", given.round, 0, UINT64_MAX, u.round); !s)
        return s;
    return parse_by("--by", given.by, u.by_store);
}

status check(request& out, const texts& given, const apps::common_flags& common) {
    status bad = out.what == command::make     ? check_make(out, given)
                 : out.what == command::update ? check_update(out, given)
                                               : check_run(out, given);
    if (bad.ok()) bad = apps::settle_options(common, out.settings);
    out.json = common.json;
    out.quiet = out.make.quiet = common.quiet;
    out.threads = out.make.threads = out.update.threads =
        apps::thread_count(out.settings.worker_threads);
    return bad;
}

}  // namespace

bool run_request::has(const std::string& method) const {
    return std::find(methods.begin(), methods.end(), method) != methods.end();
}

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-sssp");
    apps::common_flags common;
    texts given;
    app.set_version_flag("--version", std::string("penstock ") + version());
    app.require_subcommand(1);
    add_run(app, out, common, given);
    add_make(app, out, common, given);
    const CLI::App* const update = add_update(app, out, common, given);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    out.what = update->parsed()             ? command::update
               : app.got_subcommand("make") ? command::make
                                            : command::run;
    const status bad = check(out, given, common);
    if (bad.ok()) return std::nullopt;
    apps::say(bad.message);
    return apps::exit_usage;
}

status watch_for_signals() { return apps::watch_signals(); }

status start_runtime(const request& asked, backend where, std::unique_ptr<runtime>& out) {
    options settings = asked.settings;
    settings.where = where;
    // Regions have memory of their own, and nothing else is read here.
    if (!settings.cache_bytes) settings.cache_bytes = std::uint64_t{64} << 20;
    return apps::create_runtime(settings, asked.quiet, out);
}

}  // namespace penstock::sssp
