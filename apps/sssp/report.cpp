#include "report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

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

json json_of(const std::string& name, const std::vector<round_times>& rounds) {
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
json ratio(const session& s, const update_run& u, const char* baseline) {
    double penstock = 0, other = 0;
    for (std::size_t i = 0; i < s.methods.size(); ++i) {
        if (s.methods[i].name == "penstock") penstock = median(each(u.methods[i], total_of));
        if (s.methods[i].name == baseline) other = median(each(u.methods[i], total_of));
    }
    return penstock > 0 && other > 0 ? json(other / penstock) : json(nullptr);
}

json json_of(const session& s, const update_run& u) {
    json methods = json::array();
    for (std::size_t i = 0; i < s.methods.size(); ++i)
        methods.push_back(json_of(s.methods[i].name, u.methods[i]));
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

json json_of(const session& s) {
    const run_request& r = s.asked.run;
    json methods = json::array(), updates = json::array();
    for (const method_run& m : s.methods)
        methods.push_back({{"method", m.name},
                           {"backend", m.backend},
                           {"how", m.place->note()},
                           {"start_seconds", m.start_seconds},
                           {"first_data_seconds", m.first.data_seconds},
                           {"first_compute_seconds", m.first.compute_seconds}});
    for (const update_run& u : s.updates) updates.push_back(json_of(s, u));
    return {
        {"program", "penstock-sssp"},
        {"version", version()},
        {"command", "run"},
        {"graph", s.graph.path},
        {"vertices", s.graph.shape.vertices},
        {"edges", s.graph.shape.edges},
        {"file_bytes", s.graph.shape.file_bytes()},
        {"source", r.source},
        {"rounds", r.rounds},
        {"seed", r.seed},
        {"delta", s.delta},
        {"threads", s.asked.threads},
        {"update_by", r.percents.empty() ? json(nullptr) : json(r.by_store ? "store" : "write")},
        {"mounted", s.mounted},
        {"device", s.device_name.empty() ? json(nullptr) : json(s.device_name)},
        {"methods", methods},
        {"updates", updates},
        {"reached", s.reached},
        {"farthest", s.farthest},
        {"rounds_checked", r.check ? json(s.checked) : json(nullptr)},
        {"result", r.out.empty() ? json(nullptr) : json(r.out)}};
}

std::string line_of(const session& s, const update_run& u) {
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

void say_summary(const session& s) {
    apps::say(apps::with_commas(s.reached) + " vertices reached, the farthest at " +
              apps::with_commas(s.farthest));
    if (!s.asked.run.percents.empty() && s.asked.run.has("penstock") && !s.mounted)
        apps::say(
            "without a mount the changed pages are not known, so each acquire brought the "
            "whole file");
    if (s.asked.run.check)
        apps::say("the distances of " + apps::with_commas(s.checked) +
                  " rounds are those that Dijkstra's algorithm finds");
}

}  // namespace

void say_methods(const session& s) {
    if (s.asked.quiet) return;
    apps::say(apps::with_commas(s.graph.shape.vertices) + " vertices, " +
              apps::with_commas(s.graph.shape.edges) + " edges, " +
              format_size(s.graph.shape.file_bytes()));
    for (const method_run& m : s.methods)
        apps::say(m.name + " on " + m.backend + ": " + m.place->note() + "; made in " +
                  text_of("%.2f s", m.start_seconds));
}

void say_update(const session& s, const update_run& u) {
    if (!s.asked.quiet) apps::say(line_of(s, u));
}

status report(const session& s) {
    if (s.asked.json)
        if (status failed = apps::print_json(apps::line_of(json_of(s))); !failed) return failed;
    if (!s.asked.quiet) say_summary(s);
    return {};
}

status report(const request& asked, const make_report& made) {
    const make_request& m = asked.make;
    if (asked.json)
        if (status failed = apps::print_json(
                apps::line_of({{"program", "penstock-sssp"},
                               {"version", version()},
                               {"command", "make"},
                               {"graph", m.out},
                               {"vertices", m.shape.vertices},
                               {"edges", m.shape.edges},
                               {"bytes", m.shape.file_bytes()},
                               {"seed", m.seed},
                               {"most_edges_of_a_vertex", made.most_edges_of_a_vertex},
                               {"threads", m.threads},
                               {"seconds", {{"total", made.seconds}}}}));
            !failed)
            return failed;
    if (!asked.quiet)
        apps::say(m.out + ": " + apps::with_commas(m.shape.vertices) + " vertices, " +
                  apps::with_commas(m.shape.edges) + " edges, " +
                  format_size(m.shape.file_bytes()) + " in " + text_of("%.2f s", made.seconds) +
                  " by " + std::to_string(m.threads) + " threads");
    return {};
}

}  // namespace penstock::sssp
