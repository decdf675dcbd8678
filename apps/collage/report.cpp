#include "report.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "penstock/version.hpp"

namespace penstock::collage {

namespace {

using nlohmann::json;

std::string text_of(const char* form, double number) {
    char text[64];
    std::snprintf(text, sizeof text, form, number);
    return text;
}

double ratio(std::uint64_t a, std::uint64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

// Names of files need not be UTF-8; JSON must be.
std::string line_of(const json& what) {
    return what.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

json library_json(const library& from) {
    const library_header& h = from.header;
    std::uint64_t entries = 0;
    for (const std::uint64_t n : h.table_entries) entries += n;
    return {{"path", from.path},
            {"version", h.version},
            {"tiles", h.tile_count},
            {"bytes", from.bytes()},
            {"tables", h.table_count},
            {"projections", h.projection_count},
            {"width", h.width},
            {"slots", h.slots},
            {"table_entries", entries},
            {"seed", h.seed},
            {"pictures", h.picture_count},
            {"stride_pixels", h.stride_pixels},
            {"scales", h.scale_count}};
}

json runtime_json(const runtime& rt) {
    const options& o = rt.settings();
    return {{"backend", name_of(rt.where())},
            {"device", rt.device_name()},
            {"io", rt.io_name()},
            {"cache_bytes", *o.cache_bytes},
            {"page_bytes", o.page_bytes},
            {"statistics", json::parse(rt.stats().to_json())}};
}

}  // namespace

std::string json_of(const request&, const index_report& r) {
    return line_of(
        {{"program", "penstock-collage"},
         {"version", version()},
         {"command", "index"},
         {"library", library_json(r.made)},
         {"pictures", r.pictures},
         {"other_files", r.other_files},
         {"too_small", r.too_small},
         {"left_out", r.left_out},
         {"threads", r.threads},
         {"tiles_per_second", r.total_seconds > 0
                                  ? static_cast<double>(r.made.header.tile_count) / r.total_seconds
                                  : 0.0},
         {"cpu_seconds", r.cpu_seconds},
         {"seconds",
          {{"find", r.find_seconds},
           {"cut", r.cut_seconds},
           {"width", r.width_seconds},
           {"tables", r.table_seconds},
           {"total", r.total_seconds}}}});
}

std::string json_of(const request& asked, const make_report& r) {
    const method_report& m = r.method;
    const double total = r.library_seconds + r.decode_seconds + m.start_seconds + m.window_seconds +
                         m.collage_seconds + r.encode_seconds;
    json out = {
        {"program", "penstock-collage"},
        {"version", version()},
        {"command", "make"},
        {"method", asked.make.method},
        {"backend", m.backend},
        {"how", m.note},
        {"input", asked.make.input},
        {"output", asked.make.out},
        {"width", r.width},
        {"height", r.height},
        {"blocks", m.blocks},
        {"library", library_json(r.from)},
        {"evaluations", m.evaluations},
        {"unique_tiles", m.unique_tiles},
        {"redundancy", ratio(m.evaluations, m.unique_tiles)},
        {"candidates_per_block", ratio(m.evaluations, m.blocks)},
        {"fallback_blocks", m.fallback_blocks},
        {"pages_read", m.pages_read},
        {"window_bytes", m.window_bytes},
        {"batches", m.batches},
        {"cpu_seconds", m.cpu_seconds},
        {"cpu_cores_used", m.collage_seconds > 0 ? m.cpu_seconds / m.collage_seconds : 0.0}};
    out["seconds"] = {{"library", r.library_seconds},
                      {"decode", r.decode_seconds},
                      {"start", m.start_seconds},
                      {"windows", m.window_seconds},
                      {"collage", m.collage_seconds},
                      {"encode", r.encode_seconds},
                      {"total", total}};
    out["collage_parts"] = {{"order", m.order_seconds},
                            {"upload", m.upload_seconds},
                            {"compute", m.compute_seconds},
                            {"download", m.download_seconds}};
    out["runtime"] = r.rt != nullptr ? runtime_json(*r.rt) : json(nullptr);
    return line_of(out);
}

void say_summary(const index_report& r) {
    apps::say(apps::with_commas(r.made.header.tile_count) + " tiles from " +
              apps::with_commas(r.pictures) + " pictures, " + format_size(r.made.bytes()) +
              ", in " + text_of("%.2f s", r.total_seconds) + " (pictures " +
              text_of("%.2f", r.cut_seconds) + ", width " + text_of("%.2f", r.width_seconds) +
              ", tables " + text_of("%.2f", r.table_seconds) + "); " +
              apps::with_commas(r.other_files) + " other files, " + apps::with_commas(r.too_small) +
              " too small, " + apps::with_commas(r.left_out.size()) + " left out");
}

void say_summary(const request& asked, const make_report& r) {
    for (const std::string& note : r.notes) apps::say(note);
    const method_report& m = r.method;
    apps::say(asked.make.out + ": " + apps::with_commas(m.blocks) + " blocks in " +
              text_of("%.3f s", m.collage_seconds) + " by " + asked.make.method + " on " +
              m.backend + " (" + m.note + "); " + apps::with_commas(m.evaluations) +
              " candidates compared, " + apps::with_commas(m.unique_tiles) +
              " different tiles (redundancy " +
              text_of("%.1f", ratio(m.evaluations, m.unique_tiles)) + "), " +
              apps::with_commas(m.pages_read) + " pages read");
    apps::say("collage: order " + text_of("%.4f s", m.order_seconds) + ", upload " +
              text_of("%.4f s", m.upload_seconds) + ", compute " +
              text_of("%.4f s", m.compute_seconds) + ", download " +
              text_of("%.4f s", m.download_seconds));
    apps::say("library " + text_of("%.3f s", r.library_seconds) + ", decode " +
              text_of("%.3f s", r.decode_seconds) + ", start " +
              text_of("%.3f s", m.start_seconds) + ", windows " +
              text_of("%.3f s", m.window_seconds) + ", encode " +
              text_of("%.3f s", r.encode_seconds));
}

}  // namespace penstock::collage
