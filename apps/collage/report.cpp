// What penstock-collage prints: the JSON object and the summary.
#include "session.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"

namespace penstock::collage {

namespace {

using apps::text_of;
using nlohmann::json;

double ratio(std::uint64_t a, std::uint64_t b) {
    return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
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

}  // namespace

json index_session::json_of() const {
    const index_report& r = report;
    const auto tiles = static_cast<double>(r.made.header.tile_count);
    return {{"library", library_json(r.made)},
            {"pictures", r.pictures},
            {"other_files", r.other_files},
            {"too_small", r.too_small},
            {"left_out", r.left_out},
            {"threads", asked.threads},
            {"tiles_per_second", r.total_seconds > 0 ? tiles / r.total_seconds : 0.0},
            {"cpu_seconds", r.cpu_seconds},
            {"seconds",
             {{"find", r.find_seconds},
              {"cut", r.cut_seconds},
              {"width", r.width_seconds},
              {"tables", r.table_seconds},
              {"total", r.total_seconds}}}};
}

json make_session::json_of() const {
    const method_report& m = report;
    const double total = library_seconds + decode_seconds + m.start_seconds + m.window_seconds +
                         m.seconds.front() + encode_seconds;
    json made = apps::json_of_work(m);
    made.update({{"input", input},
                 {"output", out},
                 {"width", in.width},
                 {"height", in.height},
                 {"blocks", m.blocks},
                 {"library", library_json(from)},
                 {"evaluations", m.evaluations},
                 {"unique_tiles", m.unique_tiles},
                 {"redundancy", ratio(m.evaluations, m.unique_tiles)},
                 {"candidates_per_block", ratio(m.evaluations, m.blocks)},
                 {"fallback_blocks", m.fallback_blocks},
                 {"pages_read", m.pages_read},
                 {"batches", m.batches},
                 {"collage_parts",
                  {{"order", m.order_seconds},
                   {"upload", m.upload_seconds},
                   {"compute", m.compute_seconds},
                   {"download", m.download_seconds}}},
                 {"runtime", apps::runtime_of(m)}});
    made["seconds"].update({{"library", library_seconds},
                            {"decode", decode_seconds},
                            {"collage", m.seconds.front()},
                            {"encode", encode_seconds},
                            {"total", total}});
    return made;
}

void index_session::say_summary() const {
    const index_report& r = report;
    apps::say(apps::with_commas(r.made.header.tile_count) + " tiles from " +
              apps::with_commas(r.pictures) + " pictures, " + format_size(r.made.bytes()) +
              ", in " + text_of("%.2f s", r.total_seconds) + " (pictures " +
              text_of("%.2f", r.cut_seconds) + ", width " + text_of("%.2f", r.width_seconds) +
              ", tables " + text_of("%.2f", r.table_seconds) + "); " +
              apps::with_commas(r.other_files) + " other files, " + apps::with_commas(r.too_small) +
              " too small, " + apps::with_commas(r.left_out.size()) + " left out");
}

void make_session::say_summary() const {
    const method_report& m = report;
    apps::say_notes(m);
    const auto seconds = [](double time) { return text_of("%.3f s", time); };
    const auto short_time = [](double time) { return text_of("%.4f s", time); };
    apps::say(out + ": " + apps::with_commas(m.blocks) + " blocks in " +
              seconds(m.seconds.front()) + " by " + m.name + " on " + m.backend + " (" + m.note +
              "); " + apps::with_commas(m.evaluations) + " candidates compared, " +
              apps::with_commas(m.unique_tiles) + " different tiles (redundancy " +
              text_of("%.1f", ratio(m.evaluations, m.unique_tiles)) + "), " +
              apps::with_commas(m.pages_read) + " pages read");
    apps::say("collage: order " + short_time(m.order_seconds) + ", upload " +
              short_time(m.upload_seconds) + ", compute " + short_time(m.compute_seconds) +
              ", download " + short_time(m.download_seconds));
    apps::say("library " + seconds(library_seconds) + ", decode " + seconds(decode_seconds) +
              ", start " + seconds(m.start_seconds) + ", windows " + seconds(m.window_seconds) +
              ", encode " + seconds(encode_seconds));
}

}  // namespace penstock::collage
