#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

namespace {

using apps::text_of;
using nlohmann::json;

std::string backend_of(const session& s) {
    return s.rt != nullptr && s.rt->where() == backend::gpu ? "gpu" : "cpu";
}
std::string device_of(const session& s) {
    return s.rt != nullptr ? s.rt->device_name() : "CPU threads";
}

std::uint64_t pages_shared(const session& s) {
    return shared_pages(s.job.tiles.image_width, s.job.tiles.image_height, s.job.split,
                        image_header_bytes);
}

json json_of(const method_run& m) {
    const auto median = [&](double (*what)(const phases&)) { return m.median(what); };
    json totals = json::array();
    for (const phases& one : m.runs) totals.push_back(one.total());
    const phases& last = m.runs.back();
    return {{"method", m.name},
            {"seconds",
             {{"map", median([](const phases& p) { return p.map; })},
              {"input", median([](const phases& p) { return p.input; })},
              {"compute", median([](const phases& p) { return p.compute; })},
              {"left", median([](const phases& p) { return p.left; })},
              {"right", median([](const phases& p) { return p.right; })},
              {"merge", median([](const phases& p) { return p.merge; })},
              {"total", m.median_total()},
              {"end", median([](const phases& p) { return p.end; })},
              {"totals", totals}}},
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
json speedups(const session& s) {
    json out = json::object();
    const auto ours = std::find_if(s.methods.begin(), s.methods.end(),
                                   [](const method_run& m) { return m.name == "penstock"; });
    if (ours == s.methods.end() || ours->median_total() <= 0) return out;
    for (const method_run& m : s.methods)
        if (m.name != "penstock") out[m.name] = m.median_total() / ours->median_total();
    return out;
}

}  // namespace

std::string json_of(const session& s) {
    const run_request& asked = s.asked.run;
    const tile_set& t = s.job.tiles;
    json methods = json::array();
    for (const method_run& one : s.methods) methods.push_back(json_of(one));
    json split = {{"column", s.job.split},
                  {"part", static_cast<double>(s.job.split) / t.image_width},
                  {"chosen", asked.split.has_value() ? "given" : "auto"}};
    if (s.measured.has_value())
        split.update({{"left_pixels_a_second", s.measured->left_rate},
                      {"right_pixels_a_second", s.measured->right_rate},
                      {"seconds", s.measured->seconds}});
    return apps::line_of({{"program", "penstock-stitch"},
                          {"version", version()},
                          {"command", "run"},
                          {"tiles", asked.tiles},
                          {"tile_count", t.places.size()},
                          {"tile_width", t.tile_width},
                          {"tile_height", t.tile_height},
                          {"tile_bytes", t.file.bytes},
                          {"result", asked.out},
                          {"image_width", t.image_width},
                          {"image_height", t.image_height},
                          {"image_bytes", s.image.bytes()},
                          {"image_hash", hexadecimal(s.hash)},
                          {"convolutions", asked.convolutions},
                          {"repetitions", asked.repetitions},
                          {"merge", asked.whole_pages ? "pages" : "bytes"},
                          {"split", split},
                          {"pages_shared", pages_shared(s)},
                          {"left_pixels", pixels_of(s.job.left)},
                          {"right_pixels", pixels_of(s.job.right)},
                          {"backend", backend_of(s)},
                          {"device", device_of(s)},
                          {"threads", s.job.all_threads},
                          {"how", row_code_name()},
                          {"start_seconds", s.start_seconds},
                          {"layout_seconds", s.layout_seconds},
                          {"methods", methods},
                          {"speedup_over", speedups(s)}});
}

std::string json_of(const request& asked, const make_report& r) {
    const make_request& m = asked.make;
    return apps::line_of({{"program", "penstock-stitch"},
                          {"version", version()},
                          {"command", "make"},
                          {"tiles", m.out},
                          {"rows", m.rows},
                          {"columns", m.columns},
                          {"tile_width", m.tile_width},
                          {"tile_height", m.tile_height},
                          {"overlap_percent", m.overlap_percent},
                          {"jitter", m.jitter},
                          {"seed", m.seed},
                          {"image_width", r.image_width},
                          {"image_height", r.image_height},
                          {"bytes", r.bytes},
                          {"threads", r.threads},
                          {"seconds", {{"total", r.seconds}}}});
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    const tile_set& t = s.job.tiles;
    apps::say(apps::with_commas(t.places.size()) + " tiles, image of " +
              apps::with_commas(t.image_width) + " by " + apps::with_commas(t.image_height) + ", " +
              std::to_string(s.job.convolutions) + " convolutions; " + device_of(s) +
              " left of column " + apps::with_commas(s.job.split) + ", " +
              std::to_string(s.job.threads) + " threads (" + row_code_name() + ") right of it; " +
              apps::with_commas(pages_shared(s)) + " pages shared");
    const json faster = speedups(s);
    for (const method_run& m : s.methods) {
        const auto seconds = [&](double (*what)(const phases&)) {
            return text_of("%.3f s", m.median(what));
        };
        apps::say(m.name + ": " + text_of("%.3f s", m.median_total()) + " (map " +
                  seconds([](const phases& p) { return p.map; }) + ", input " +
                  seconds([](const phases& p) { return p.input; }) + ", compute " +
                  seconds([](const phases& p) { return p.compute; }) + ", merge " +
                  seconds([](const phases& p) { return p.merge; }) + ")" +
                  (faster.contains(m.name)
                       ? "; penstock is " + text_of("%.2f", faster[m.name].get<double>()) +
                             " times as fast"
                       : ""));
    }
}

void say_summary(const request& asked, const make_report& r) {
    apps::say(asked.make.out + ": " +
              apps::with_commas(std::uint64_t{asked.make.rows} * asked.make.columns) +
              " tiles of an image of " + apps::with_commas(r.image_width) + " by " +
              apps::with_commas(r.image_height) + ", " + format_size(r.bytes) + " in " +
              text_of("%.2f s", r.seconds) + " by " + std::to_string(r.threads) + " threads");
}

}  // namespace penstock::stitch
