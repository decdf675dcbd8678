// What penstock-stitch prints: the JSON object, the summary; and medians.
#include "session.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

namespace {

using apps::text_of;
using nlohmann::json;

std::string backend_of(const run_session& s) {
    return s.rt != nullptr && s.rt->where() == backend::gpu ? "gpu" : "cpu";
}
std::string device_of(const run_session& s) {
    return s.rt != nullptr ? s.rt->device_name() : "CPU threads";
}

std::uint64_t pages_shared(const run_session& s) {
    return shared_pages(s.job.tiles.image_width, s.job.tiles.image_height, s.job.split,
                        image_header_bytes);
}

json json_of_run(const method_run& m) {
    const phases& last = m.runs.back();
    return {{"method", m.name},
            {"seconds",
             {{"map", m.median(&phases::map)},
              {"input", m.median(&phases::input)},
              {"compute", m.median(&phases::compute)},
              {"left", m.median(&phases::left)},
              {"right", m.median(&phases::right)},
              {"merge", m.median(&phases::merge)},
              {"total", apps::median(m.totals())},
              {"end", m.median(&phases::end)},
              {"totals", m.totals()}}},
            {"bytes_released", last.bytes_released},
            {"pages_released", last.pages_released},
            {"pages_fetched", last.pages_fetched}};
}

// As text: JSON's numbers have 53 bits.
std::string hexadecimal(std::uint64_t number) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
    return text;
}

// How many times as long as penstock each other method took.
json speedups(const run_session& s) {
    json out = json::object();
    double ours = 0;
    for (const method_run& m : s.runs)
        if (m.name == "penstock") ours = apps::median(m.totals());
    for (const method_run& m : s.runs)
        if (m.name != "penstock" && ours > 0) out[m.name] = apps::median(m.totals()) / ours;
    return out;
}

}  // namespace

double method_run::median(double phases::*part) const {
    std::vector<double> all;
    for (const phases& run : runs) all.push_back(run.*part);
    return apps::median(all);
}

std::vector<double> method_run::totals() const {
    std::vector<double> all;
    for (const phases& run : runs) all.push_back(run.total());
    return all;
}

json run_session::json_of() const {
    const tile_set& t = job.tiles;
    json made = json::array();
    for (const method_run& each : runs) made.push_back(json_of_run(each));
    json line = {{"column", job.split},
                 {"part", static_cast<double>(job.split) / t.image_width},
                 {"chosen", split.has_value() ? "given" : "auto"}};
    if (measured.has_value())
        line.update({{"left_pixels_a_second", measured->left_rate},
                     {"right_pixels_a_second", measured->right_rate},
                     {"seconds", measured->seconds}});
    return {{"tiles", tiles},
            {"tile_count", t.places.size()},
            {"tile_width", t.tile_width},
            {"tile_height", t.tile_height},
            {"tile_bytes", t.file.bytes},
            {"result", out},
            {"image_width", t.image_width},
            {"image_height", t.image_height},
            {"image_bytes", image.bytes()},
            {"image_hash", hexadecimal(hash)},
            {"convolutions", job.convolutions},
            {"repetitions", repetitions},
            {"merge", merge},
            {"split", line},
            {"pages_shared", pages_shared(*this)},
            {"left_pixels", pixels_of(job.left)},
            {"right_pixels", pixels_of(job.right)},
            {"backend", backend_of(*this)},
            {"device", device_of(*this)},
            {"threads", job.all_threads},
            {"how", row_code_name()},
            {"start_seconds", start_seconds},
            {"layout_seconds", layout_seconds},
            {"methods", made},
            {"speedup_over", speedups(*this)}};
}

json make_session::json_of() const {
    return {{"tiles", out},
            {"rows", rows},
            {"columns", columns},
            {"tile_width", tile_width},
            {"tile_height", tile_height},
            {"overlap_percent", overlap_percent},
            {"jitter", jitter},
            {"seed", seed},
            {"image_width", tiles.image_width},
            {"image_height", tiles.image_height},
            {"bytes", tiles.file_bytes()},
            {"threads", threads},
            {"seconds", {{"total", seconds}}}};
}

void run_session::say_summary() const {
    for (const std::string& note : notes) apps::say(note);
    const tile_set& t = job.tiles;
    apps::say(apps::with_commas(t.places.size()) + " tiles, image of " +
              apps::with_commas(t.image_width) + " by " + apps::with_commas(t.image_height) + ", " +
              std::to_string(job.convolutions) + " convolutions; " + device_of(*this) +
              " left of column " + apps::with_commas(job.split) + ", " +
              std::to_string(job.threads) + " threads (" + row_code_name() + ") right of it; " +
              apps::with_commas(pages_shared(*this)) + " pages shared");
    const json faster = speedups(*this);
    for (const method_run& m : runs) {
        const auto seconds = [&](double phases::*part) {
            return text_of("%.3f s", m.median(part));
        };
        apps::say(m.name + ": " + text_of("%.3f s", apps::median(m.totals())) + " (map " +
                  seconds(&phases::map) + ", input " + seconds(&phases::input) + ", compute " +
                  seconds(&phases::compute) + ", merge " + seconds(&phases::merge) + ")" +
                  (faster.contains(m.name)
                       ? "; penstock is " + text_of("%.2f", faster[m.name].get<double>()) +
                             " times as fast"
                       : ""));
    }
}

void make_session::say_summary() const {
    apps::say(out + ": " + apps::with_commas(std::uint64_t{rows} * columns) +
              " tiles of an image of " + apps::with_commas(tiles.image_width) + " by " +
              apps::with_commas(tiles.image_height) + ", " + format_size(tiles.file_bytes()) +
              " in " + text_of("%.2f s", seconds) + " by " + std::to_string(threads) + " threads");
}

}  // namespace penstock::stitch
