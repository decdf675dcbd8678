// What penstock-match prints: lines, the JSON object, the summary.
#include "session.hpp"

#include <bit>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"

namespace penstock::match {

namespace {

using apps::text_of;
using nlohmann::json;

float distance_of(std::uint64_t key) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(key));
}

// A squared difference and its sum: a subtraction, and a multiplication and addition in one.
double gflops(const match_report& r) {
    const double seconds = r.median_seconds();
    return seconds > 0 ? 3e-9 * static_cast<double>(r.totals.numbers) / seconds : 0.0;
}

json json_of_run(const match_report& r) {
    json out = apps::json_of_work(r);
    out.update({{"matched", r.totals.matched},
                {"pairs_compared", r.totals.pairs},
                {"numbers_compared", r.totals.numbers},
                {"gflops", gflops(r)},
                {"bytes_read", r.bytes_read}});
    out["seconds"]["match"] = r.median_seconds();
    return out;
}

json matches_json(const search_session& s) {
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

status write_lines(const search_session& s, apps::output_file& to) {
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

json search_session::json_of() const {
    const match_report& last = runs.back();
    json out = json_of_run(last), files = json::array();
    for (const image_file& file : job.databases)
        files.push_back({{"path", file.path},
                         {"images", file.header.image_count},
                         {"bytes", file.header.data_bytes()}});
    out["queries"] = {{"path", job.queries.path}, {"images", job.queries.header.image_count}};
    out["shape"] = shape_of(job.queries.header);
    out["databases"] = files;
    out["threshold"] = job.threshold;
    out["whole"] = job.whole;
    out["pairs"] = job.queries.header.image_count * job.image_count();
    out["seconds"]["check"] = check_seconds;
    out["seconds"]["output"] = output_seconds;
    if (compare)
        for (const match_report& run : runs) out["compared"].push_back(json_of_run(run));
    if (this->out.empty()) out["matches"] = matches_json(*this);
    else out["output"] = this->out;
    out["runtime"] = apps::runtime_of(last);
    return out;
}

void search_session::say_summary() const {
    for (const match_report& r : runs) apps::say_notes(r);
    for (const match_report& r : runs)
        apps::say(r.name + " on " + r.backend + " (" + r.note + "): " +
                  apps::with_commas(r.totals.matched) + " of " + apps::with_commas(r.best.size()) +
                  " queries matched in " + text_of("%.3f s", r.median_seconds()) + ", windows " +
                  text_of("%.3f s", r.window_seconds) + ", start " +
                  text_of("%.3f s", r.start_seconds) + "; " + apps::with_commas(r.totals.pairs) +
                  " pairs of images compared, " + text_of("%.1f", gflops(r)) + " GFLOP/s");
}

json make_session::json_of() const {
    return {{"files", files},     {"bytes", bytes},         {"queries", queries},
            {"images", images},   {"seed", seed},           {"planted", planted},
            {"threads", threads}, {"threshold", threshold}, {"seconds", {{"total", seconds}}}};
}

void make_session::say_summary() const {
    apps::say(folder + ": " + std::to_string(files.size()) + " files, " + format_size(bytes) +
              ", in " + text_of("%.2f s", seconds) + "; " + apps::with_commas(planted) +
              " queries have a match, found with --threshold " + text_of("%.6g", threshold));
}

}  // namespace penstock::match
