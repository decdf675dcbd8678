// penstock-collage: makes libraries of tiles and collages from them. The texts below say what it
// promises.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/program.hpp"
#include "common/threads.hpp"
#include "index_library.hpp"
#include "methods.hpp"

namespace penstock::collage {

namespace {

using apps::text_of;
using apps::with_commas;
using nlohmann::json;

constexpr const char* about =
    "Makes a collage: replaces each 32 by 32 block of a picture by the most similar tile of a "
    "library, found by locality\n"
    "sensitive hashing. `index` makes the library from a folder of pictures, `make` a collage from "
    "it.\n";

constexpr const char* index_details =
    "\nPictures are JPEG, PNG and binary PPM, told by their first bytes; other files are passed "
    "over. Tiles of 32 by 32 pixels\n"
    "are cut at the full scale and at halves of it, and numbered by path, scale, row and column. "
    "Tiles that are equal are all\n"
    "kept. A picture that cannot be read costs one line on standard error and its tiles; with "
    "--strict it is an error. LIB\n"
    "appears whole or not at all; a library of that name is replaced.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* make_details =
    "\nThe most similar tile is the candidate with the least Euclidean distance of the colour "
    "histograms, and of equals the\n"
    "first. All methods make the same picture. OUT ends in .png or .ppm and appears whole or not "
    "at all.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr apps::method<status(const collage_job&, picture&, method_report&)> methods[] = {
    {"penstock", apps::runs_on::anywhere, make_with_penstock},
    {"cpu", apps::runs_on::cpu, make_with_cpu},
    {"cuda", apps::runs_on::gpu, make_with_cuda},
    {"regions", apps::runs_on::anywhere, make_with_regions},
};

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

class index_session final : public apps::command {
public:
    index_session()
        : command({"index", "Make a library of tiles from a folder of pictures", index_details,
                   apps::command_kind::make}) {}

    void add_options(apps::option_list& add) override {
        add.operand("DIR", asked.folder, "Folder of pictures, searched with all below it");
        add.text("-o,--out", asked.out, "Folder that becomes the library", "LIB").required();
        add.number("--tiles", asked.tiles, {1, most_tiles, ""},
                   "How many tiles to cut, spread evenly over the pictures; default: all", "N");
        add.number("--stride", asked.stride, {1, 4096, ""},
                   "Pixels from tile to tile; default: 32, or less if --tiles needs it", "N");
        add.number("--scales", asked.scales, {1, 16, ""},
                   "Scales of each picture, each half of the one before; default: 4", "N");
        add.number("--seed", asked.seed, {0, UINT64_MAX, ""},
                   "Of the hash functions' random numbers", "N");
        add.flag("--strict", asked.strict, "Make a picture that cannot be read an error");
    }

    status check() override {
        asked.threads = apps::thread_count(settings.worker_threads);
        asked.quiet = common.quiet;
        return {};
    }

    status run() override {
        status ended = index_library(asked, report);
        if (!asked.strict || ended.ok())
            for (const std::string& complaint : report.found.complaints) apps::say(complaint);
        return ended;
    }

    [[nodiscard]] json json_of() const override {
        const index_report& r = report;
        const auto tiles = static_cast<double>(r.made.header.tile_count);
        return {{"library", library_json(r.made)},
                {"pictures", r.made.header.picture_count},
                {"other_files", r.found.other_files},
                {"too_small", r.found.too_small},
                {"left_out", r.found.complaints},
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

    void say_summary() const override {
        const index_report& r = report;
        apps::say(with_commas(r.made.header.tile_count) + " tiles from " +
                  with_commas(r.made.header.picture_count) + " pictures, " +
                  format_size(r.made.bytes()) + ", in " + text_of("%.2f s", r.total_seconds) +
                  " (pictures " + text_of("%.2f", r.cut_seconds) + ", width " +
                  text_of("%.2f", r.width_seconds) + ", tables " +
                  text_of("%.2f", r.table_seconds) + "); " + with_commas(r.found.other_files) +
                  " other files, " + with_commas(r.found.too_small) + " too small, " +
                  with_commas(r.found.complaints.size()) + " left out");
    }

private:
    index_request asked;
    index_report report;
};

class make_session final : public apps::command {
public:
    make_session()
        : command({"make", "Make a collage of a picture", make_details, apps::command_kind::run,
                   apps::device_use::several}) {}

    void add_options(apps::option_list& add) override {
        add.operand("INPUT", input, "Picture to make the collage of");
        add.operand("LIB", library_path, "Library made by penstock-collage index");
        add.text("-o,--out", out, "File for the collage", "OUT").required();
        add.choice("--method", method, apps::names_of(methods), "method",
                   "penstock: one kernel that reads the library itself; regions: one with plain "
                   "pointers into regions of it; or a baseline: cpu (all cores), cuda (two "
                   "kernels, the CPU reads between them)",
                   "NAME");
        add.choice("--readers", readers, {"warp", "block"}, "kind of reader",
                   "penstock on a GPU: each warp of a thread block reads records of its own, or "
                   "all of the block read one together; default: warp",
                   "KIND");
        add.flag("--cached", cached,
                 "penstock: bring the library into the cache before the time begins");
        add.choice("--placement", placement, {"filled", "in-place"}, "placement",
                   "regions: in memory of their own, or in the operating system's page cache; "
                   "default: filled",
                   "NAME");
        add.windows_flag(windows);
    }

    status check() override {
        // A record of the library lies on one page of this size; larger pages would load bytes
        // that no reader asked for.
        if (common.page.empty() && std::getenv("PENSTOCK_PAGE") == nullptr)
            settings.page_bytes = record_stride_bytes;
        if (status s = settings.check(); !s) return s;
        if (status s = check_is_used(); !s) return s;
        if (method == "cuda" || method == "regions")
            if (status s = apps::check_single_device(settings, "--method " + method); !s) return s;
        return check_output_name(out);
    }

    status open() override {
        apps::stopwatch watch;
        if (status s = open_library(library_path, from); !s) return s;
        std::vector<std::string> inputs{input, from.file(header_name)};
        for (const library_file& part : from.files()) inputs.push_back(part.path);
        if (status s = apps::check_not_input(out, inputs); !s) return s;
        if (status s = apps::check_not_report(common.json, out); !s) return s;
        library_seconds = watch.lap();
        if (status s = file.open(out); !s) return s;
        if (status s = load_picture(input, in); !s) return s;
        decode_seconds = watch.lap();
        return {};
    }

    status run() override {
        picture made;
        const auto& chosen = apps::method_named(methods, method);
        report.name = chosen.name;
        if (status s = chosen.run({from, in, settings, common.quiet, windows, cached,
                                   readers == "block", placement == "in-place"},
                                  made, report);
            !s)
            return s;
        apps::stopwatch watch;
        if (status s = write_picture(out, made, file); !s) return s;
        encode_seconds = watch.lap();
        return {};
    }

    [[nodiscard]] json json_of() const override {
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
                     {"evaluations_by_device", m.evaluations_by_device},
                     {"batches", m.batches},
                     {"collage_parts", json::object_t(m.parts.begin(), m.parts.end())},
                     {"runtime", apps::runtime_of(m)}});
        made["seconds"].update({{"library", library_seconds},
                                {"decode", decode_seconds},
                                {"collage", m.seconds.front()},
                                {"encode", encode_seconds},
                                {"total", total}});
        return made;
    }

    void say_summary() const override {
        const method_report& m = report;
        apps::say_notes(m);
        const auto seconds = [](double time) { return text_of("%.3f s", time); };
        apps::say(out + ": " + with_commas(m.blocks) + " blocks in " + seconds(m.seconds.front()) +
                  " by " + m.name + " on " + m.backend + " (" + m.note + "); " +
                  with_commas(m.evaluations) + " candidates compared, " +
                  with_commas(m.unique_tiles) + " different tiles (redundancy " +
                  text_of("%.1f", ratio(m.evaluations, m.unique_tiles)) + "), " +
                  with_commas(m.pages_read) + " pages read");
        std::string parts;
        for (const auto& [name, time] : m.parts)
            parts += (parts.empty() ? "collage: " : ", ") + (name + text_of(" %.4f s", time));
        apps::say(parts);
        apps::say("library " + seconds(library_seconds) + ", decode " + seconds(decode_seconds) +
                  ", start " + seconds(m.start_seconds) + ", windows " + seconds(m.window_seconds) +
                  ", encode " + seconds(encode_seconds));
    }

private:
    // What another method than the chosen one would do is refused, and not left out in silence.
    [[nodiscard]] status check_is_used() const {
        const auto refused = [this](bool given, const char* flag, const char* user) {
            if (!given || method == user) return status{};
            return apps::failure(-EINVAL, flag, ": --method ", method,
                                 " does nothing with it; leave it out, or give --method ", user);
        };
        if (status s = refused(cached, "--cached", "penstock"); !s) return s;
        if (status s = refused(!readers.empty(), "--readers", "penstock"); !s) return s;
        return refused(!placement.empty(), "--placement", "regions");
    }

    // What was asked for.
    std::string input, library_path, out;
    std::string method = "penstock", readers, placement;  // an empty one: the default
    bool windows = false, cached = false;

    library from;
    picture in;
    apps::output_file file;
    method_report report;
    double library_seconds = 0;  // opening and checking it
    double decode_seconds = 0, encode_seconds = 0;
};

}  // namespace

}  // namespace penstock::collage

int main(int argc, char** argv) {
    using namespace penstock::collage;
    return penstock::apps::run_program<index_session, make_session>(
        {"penstock-collage", about, "use a smaller picture or library"}, argc, argv);
}
