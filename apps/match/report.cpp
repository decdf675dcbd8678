#include "report.hpp"

#include <bit>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::match {

namespace {

using apps::line_of;
using apps::text_of;
using nlohmann::json;

float distance_of(std::uint64_t key) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(key));
}

// A squared difference and its sum: a subtraction, and a multiplication and addition in one.
double gflops(const method_report& r) {
    return r.match_seconds > 0 ? 3e-9 * static_cast<double>(r.totals.numbers) / r.match_seconds
                               : 0.0;
}

json json_of(const method_report& r) {
    return {
        {"method", r.name},
        {"backend", r.backend},
        {"how", r.note},
        {"matched", r.totals.matched},
        {"pairs_compared", r.totals.pairs},
        {"numbers_compared", r.totals.numbers},
        {"gflops", gflops(r)},
        {"bytes_read", r.bytes_read},
        {"window_bytes", r.window_bytes},
        {"cpu_seconds", r.cpu_seconds},
        {"cpu_cores_used", r.match_seconds > 0 ? r.cpu_seconds / r.match_seconds : 0.0},
        {"seconds",
         {{"start", r.start_seconds}, {"windows", r.window_seconds}, {"match", r.match_seconds}}}};
}

json matches_json(const session& s) {
    json out = json::array();
    for (const std::uint64_t key : s.runs.back().best) {
        if (key == no_match) {
            out.push_back(nullptr);
            continue;
        }
        const image_place at = place_of_image(s.job, key >> 32);
        out.push_back(
            {{"database", at.database}, {"image", at.image}, {"distance", distance_of(key)}});
    }
    return out;
}

}  // namespace

status write_lines(const session& s, apps::output_file& to) {
    std::string text;
    const std::vector<std::uint64_t>& best = s.runs.back().best;
    for (std::size_t i = 0; i < best.size(); ++i) {
        text += std::to_string(i);
        if (best[i] == no_match) {
            text += "\t-\t-\t-\n";
        } else {
            const image_place at = place_of_image(s.job, best[i] >> 32);
            // Nine digits tell any two of these numbers apart.
            text += "\t" + apps::field_of(s.job.databases[at.database].path) + "\t" +
                    std::to_string(at.image) + "\t" + text_of("%.9g", distance_of(best[i])) + "\n";
        }
        if (text.size() > (1u << 20)) {
            if (status failed = to.write(text.data(), text.size()); !failed) return failed;
            text.clear();
        }
    }
    return to.write(text.data(), text.size());
}

std::string json_of(const session& s) {
    const method_report& last = s.runs.back();
    json databases = json::array();
    for (const image_file& one : s.job.databases)
        databases.push_back({{"path", one.path},
                             {"images", one.header.image_count},
                             {"bytes", one.header.data_bytes()}});
    json out = {{"program", "penstock-match"}, {"version", version()}, {"command", "match"}};
    out.update(json_of(last));
    out["queries"] = {{"path", s.job.queries.path}, {"images", s.job.queries.header.image_count}};
    out["shape"] = shape_of(s.job.queries.header);
    out["databases"] = databases;
    out["threshold"] = s.job.threshold;
    out["whole"] = s.job.whole;
    out["pairs"] = s.job.queries.header.image_count * s.job.image_count();
    out["seconds"]["check"] = s.check_seconds;
    out["seconds"]["output"] = s.output_seconds;
    if (s.asked.search.compare)
        for (const method_report& one : s.runs) out["compared"].push_back(json_of(one));
    if (s.asked.search.out.empty()) out["matches"] = matches_json(s);
    else out["output"] = s.asked.search.out;
    out["runtime"] = last.rt != nullptr ? apps::json_of(*last.rt) : json(nullptr);
    return line_of(out);
}

std::string json_of(const request& asked, const make_report& r) {
    const make_request& m = asked.make;
    return line_of({{"program", "penstock-match"},
                    {"version", version()},
                    {"command", "make"},
                    {"files", r.files},
                    {"bytes", r.bytes},
                    {"queries", m.queries},
                    {"images", m.images},
                    {"seed", m.seed},
                    {"planted", r.planted},
                    {"threshold", r.threshold},
                    {"threads", r.threads},
                    {"seconds", {{"total", r.seconds}}}});
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    for (const method_report& r : s.runs)
        apps::say(r.name + " on " + r.backend + " (" + r.note + "): " +
                  apps::with_commas(r.totals.matched) + " of " + apps::with_commas(r.best.size()) +
                  " queries matched in " + text_of("%.3f s", r.match_seconds) + ", windows " +
                  text_of("%.3f s", r.window_seconds) + ", start " +
                  text_of("%.3f s", r.start_seconds) + "; " + apps::with_commas(r.totals.pairs) +
                  " pairs of images compared, " + text_of("%.1f", gflops(r)) + " GFLOP/s");
}

void say_summary(const request& asked, const make_report& r) {
    apps::say(asked.make.folder + ": " + std::to_string(r.files.size()) + " files, " +
              format_size(r.bytes) + ", in " + text_of("%.2f s", r.seconds) + "; " +
              apps::with_commas(r.planted) + " queries have a match, found with --threshold " +
              text_of("%.6g", r.threshold));
}

}  // namespace penstock::match
