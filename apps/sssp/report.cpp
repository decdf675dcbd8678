// What penstock-sssp prints: the JSON object, the words while it runs and at the end.
#include "session.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"

namespace penstock::sssp {

namespace {

using apps::text_of;
using nlohmann::json;

double median(std::vector<double> of) {
    if (of.empty()) return 0;
    std::sort(of.begin(), of.end());
    const std::size_t half = of.size() / 2;
    return of.size() % 2 == 1 ? of[half] : (of[half - 1] + of[half]) / 2;
}

template <typename Value>
std::vector<Value> each(const std::vector<round_times>& rounds,
                        Value (*value)(const round_times&)) {
    std::vector<Value> out;
    for (const round_times& one : rounds) out.push_back(value(one));
    return out;
}

double data_of(const round_times& r) { return r.data_seconds; }
double compute_of(const round_times& r) { return r.compute_seconds; }
double total_of(const round_times& r) { return r.data_seconds + r.compute_seconds; }

json json_of_rounds(const std::string& name, const std::vector<round_times>& rounds) {
    return {{"method", name},
            {"data_seconds", each(rounds, data_of)},
            {"compute_seconds", each(rounds, compute_of)},
            {"pages_fetched",
             each<std::uint64_t>(rounds, [](const round_times& r) { return r.pages; })},
            {"edges_followed",
             each<std::uint64_t>(rounds, [](const round_times& r) { return r.edges; })},
            {"steps", each<std::uint64_t>(rounds, [](const round_times& r) { return r.steps; })},
            {"median",
             {{"data_seconds", median(each(rounds, data_of))},
              {"compute_seconds", median(each(rounds, compute_of))},
              {"total_seconds", median(each(rounds, total_of))}}}};
}

// How much longer the baseline takes than penstock, in all; null where one of them was not asked
// for.
json ratio(const run_session& s, const update_run& u, const char* baseline) {
    double penstock = 0, other = 0;
    for (std::size_t i = 0; i < s.methods.size(); ++i) {
        if (s.methods[i].name == "penstock") penstock = median(each(u.methods[i], total_of));
        if (s.methods[i].name == baseline) other = median(each(u.methods[i], total_of));
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
                                     : text_of("%g", u.percent) + " % of the pages changed (" +
                                           text_of("%.3f s", median(u.update_seconds)) + ")";
    for (std::size_t i = 0; i < s.methods.size(); ++i)
        line += (i == 0 ? ": " : "; ") + s.methods[i].name + " " +
                text_of("%.4f s", median(each(u.methods[i], total_of))) + " (data " +
                text_of("%.4f", median(each(u.methods[i], data_of))) + ", compute " +
                text_of("%.4f)", median(each(u.methods[i], compute_of)));
    const json more = ratio(s, u, "copy");
    return more.is_null() ? line
                          : line + "; copy takes " + text_of("%.2f", more.get<double>()) +
                                " times as long as penstock";
}

}  // namespace

void say_methods(const run_session& s) {
    if (s.common.quiet) return;
    apps::say(apps::with_commas(s.graph.shape.vertices) + " vertices, " +
              apps::with_commas(s.graph.shape.edges) + " edges, " +
              format_size(s.graph.shape.file_bytes()));
    for (const method_run& m : s.methods)
        apps::say(m.name + " on " + m.backend + ": " + m.place->note() + "; made in " +
                  text_of("%.2f s", m.start_seconds));
}

void say_update(const run_session& s, const update_run& u) {
    if (!s.common.quiet) apps::say(line_of(s, u));
}

json run_session::json_of() const {
    json done = json::array(), changes = json::array();
    for (const method_run& m : methods)
        done.push_back({{"method", m.name},
                        {"backend", m.backend},
                        {"how", m.place->note()},
                        {"start_seconds", m.start_seconds},
                        {"first_data_seconds", m.first.data_seconds},
                        {"first_compute_seconds", m.first.compute_seconds}});
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
    apps::say(apps::with_commas(reached) + " vertices reached, the farthest at " +
              apps::with_commas(farthest));
    if (!percents.empty() && has("penstock") && !mounted)
        apps::say(
            "without a mount the changed pages are not known, so each acquire brought the "
            "whole file");
    if (checks)
        apps::say("the distances of " + apps::with_commas(checked) +
                  " rounds are those that Dijkstra's algorithm finds");
}

json make_session::json_of() const {
    return {{"graph", asked.out},         {"vertices", asked.shape.vertices},
            {"edges", asked.shape.edges}, {"bytes", asked.shape.file_bytes()},
            {"seed", asked.seed},         {"most_edges_of_a_vertex", made.most_edges_of_a_vertex},
            {"threads", asked.threads},   {"seconds", {{"total", made.seconds}}}};
}

void make_session::say_summary() const {
    const graph_shape& shape = asked.shape;
    apps::say(asked.out + ": " + apps::with_commas(shape.vertices) + " vertices, " +
              apps::with_commas(shape.edges) + " edges, " + format_size(shape.file_bytes()) +
              " in " + text_of("%.2f s", made.seconds) + " by " + std::to_string(asked.threads) +
              " threads");
}

}  // namespace penstock::sssp
