// penstock-stitch: puts tiles of a microscope together. Its commands, from their options to their
// reports; the texts below say what it promises.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "session.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

namespace {

using apps::text_of;
using apps::words;
using nlohmann::json;

constexpr const char* about =
    "Puts the tiles of a microscope together into one image file. A GPU makes the part left of a "
    "line and all cores the part right of it, at the same time;\n"
    "pages of the file that the line cuts are changed by both.\n";

constexpr const char* details =
    "\nEach tile is sharpened, and each pixel of the image comes from the last tile that covers "
    "it. All methods make the same bytes, and the program compares\n"
    "them (docs/apps/stitch.md). The image is a PGM file of 16 bits a pixel; it appears whole or "
    "not at "
    "all.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

using stitch_method = apps::method<status(const stitch_job&, image_file&, phases&)>;
constexpr stitch_method all_methods[] = {
    {"penstock", apps::runs_on::anywhere, with_penstock},
    {"private", apps::runs_on::anywhere, with_private},
    {"managed", apps::runs_on::gpu, with_managed},
    {"cpu", apps::runs_on::cpu, with_cpu},
};
constexpr const char* every_method = "all";

status read_split(const std::string& flag, const std::string& text, std::optional<double>& out) {
    out.reset();
    if (text == "auto") return {};
    return apps::parse_number<double>(flag.c_str(), text, 0, 1, "from 0 to 1, and not auto",
                                      out.emplace());
}

// The page cache of the runtime is not used, and its memory is wanted for regions.
constexpr std::uint64_t cache_bytes = 16u << 20, table_bytes = 4u << 20, staging_bytes = 4u << 20;

bool only_cpu(const run_session& s) { return s.methods == std::vector<std::string>{"cpu"}; }

status start_processors(run_session& s) {
    const std::uint32_t threads = apps::thread_count(s.settings.worker_threads);
    s.job.threads = s.job.all_threads = threads;
    if (only_cpu(s)) return {};
    apps::stopwatch watch;
    options settings = s.settings;
    settings.writable = true;
    if (!settings.cache_bytes)
        settings.cache_bytes = std::max(cache_bytes, 8 * settings.page_bytes);
    settings.table_bytes = std::min(settings.table_bytes, table_bytes);
    if (!settings.staging_bytes)
        settings.staging_bytes = std::max(staging_bytes, 4 * settings.page_bytes);
    settings.worker_threads = 1;
    if (status failed = apps::create_runtime(std::move(settings), s.notes, s.rt); !failed)
        return failed;
    s.job.rt = s.rt.get();
    if (s.rt->where() == backend::gpu) {
        s.left_maker = make_gpu_maker(s.rt->settings().device, threads);
    } else {
        const std::uint32_t half = std::max(threads / 2, 1u);
        s.left_maker = make_thread_maker(half, threads);
        s.job.threads = std::max(threads - half, 1u);
    }
    s.job.left_maker = s.left_maker.get();
    s.start_seconds = watch.lap();
    return {};
}

// Which columns each has, and which pieces these are.
status divide(run_session& s) {
    stitch_job& job = s.job;
    apps::stopwatch watch;
    if (status failed = owned_pieces(job.tiles, job.all); !failed) return failed;
    s.layout_seconds = watch.lap();
    double share = s.split.value_or(0);
    if (!s.split.has_value() && job.left_maker != nullptr) {
        s.measured.emplace();
        if (status failed = measure_balance(job, *s.measured); !failed) return failed;
        share = s.measured->share;
    }
    job.split = static_cast<std::uint32_t>(std::lround(share * job.tiles.image_width));
    job.left = within(job.all, 0, job.split);
    job.right = within(job.all, job.split, job.tiles.image_width);
    return {};
}

// All that can be used here, in place of "all". What is left out is said.
void choose_all(run_session& s) {
    s.methods = {"cpu"};
    if (const status can = check_managed(s.job); can.ok()) s.methods.push_back("managed");
    else s.notes.push_back("left out: " + can.message);
    s.methods.insert(s.methods.end(), {"private", "penstock"});
}

status run_method(run_session& s, const stitch_method& by) {
    method_run& out = s.runs.emplace_back();
    out.name = by.name;
    for (std::uint32_t i = 0; i < s.repetitions; ++i) {
        if (status failed = s.image.clear(); !failed) return failed;
        phases took;
        if (status failed = by.run(s.job, s.image, took); !failed) return failed;
        if (status failed = apps::not_interrupted(); !failed) return failed;
        out.runs.push_back(took);
        std::uint64_t hash = 0;
        if (status failed = s.image.hash(s.job.all_threads, hash); !failed) return failed;
        if (s.runs.size() == 1 && i == 0) s.hash = hash;
        if (hash != s.hash)
            return {-EILSEQ, "--method " + out.name + ": made another image than " +
                                 s.runs.front().name + "; nothing was written, please report this"};
    }
    return {};
}

status open_files(run_session& s) {
    if (status failed = open_tiles(s.tiles, s.job.tiles); !failed) return failed;
    if (status failed = apps::check_not_input(s.out, {s.tiles}); !failed) return failed;
    return s.image.open(s.out, s.job.tiles.image_width, s.job.tiles.image_height);
}

}  // namespace

run_session::run_session() : command({"run", "Make the image", details, apps::command_kind::run}) {}

void run_session::add_options(apps::option_list& add) {
    add.operand("TILES", tiles, "File of tiles");
    add.text("-o,--out", out, "File that gets the image", "FILE").required();
    std::vector<std::string> known = apps::names_of(all_methods);
    known.push_back(every_method);
    add.choices(
        "--method", methods, known, "method",
        "One or several with commas between them, or all: penstock (regions; the default), private "
        "(a buffer of its own for the GPU, merged), managed (managed memory that both "
        "write), cpu (all cores). The last one's image stays",
        "NAMES");
    add.number("--convolutions", job.convolutions, {0, most_convolutions, ""},
               "How often each tile is sharpened, 0 to 32; default: 1", "N");
    add.value("--split", read_split, split,
              "Part of the columns that is left of the line, 0 to 1, or auto (the default): "
              "by measuring both processors",
              "PART");
    add.choice("--merge", merge, {"bytes", "pages"}, "way to merge",
               "How a region's changes are written: bytes (the default), exactly what "
               "changed; pages, in whole pages where much did",
               "HOW");
    add.number("--repetitions", repetitions, {1, 1000, "from 1 to 1000"},
               "Of each method, 1 to 1000, and report the medians; default: 1", "K");
}

status run_session::check() {
    job.whole_pages = merge == "pages";
    for (auto name = methods.begin(); name != methods.end(); ++name) {
        if (std::find(methods.begin(), name, *name) != name)
            return {-EINVAL, "--method: " + apps::shown(*name) + " is given twice; give it once"};
        if (*name == every_method && methods.size() != 1)
            return {-EINVAL, "--method: 'all' has the others in it; give it alone"};
    }
    return apps::check_not_report(common.json, out);
}

// All methods, one after the other; their images are compared. The files are opened here, when a
// signal no longer leaves a passing file behind.
status run_session::run() {
    if (status failed = open_files(*this); !failed) return failed;
    if (status failed = start_processors(*this); !failed) return failed;
    if (status failed = divide(*this); !failed) return failed;
    if (methods.front() == every_method) choose_all(*this);
    for (const std::string& name : methods) {
        if (name == "managed")
            if (status can = check_managed(job); !can) return can;
        if (status failed = run_method(*this, apps::method_named(all_methods, name)); !failed)
            return failed;
    }
    return image.commit();
}

// The report of a run.

namespace {

double median_of(const method_run& m, double phases::*part) {
    std::vector<double> all;
    for (const phases& run : m.runs) all.push_back(run.*part);
    return apps::median(all);
}

std::vector<double> totals_of(const method_run& m) {
    std::vector<double> all;
    for (const phases& run : m.runs) all.push_back(run.total());
    return all;
}

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
             {{"map", median_of(m, &phases::map)},
              {"input", median_of(m, &phases::input)},
              {"compute", median_of(m, &phases::compute)},
              {"left", median_of(m, &phases::left)},
              {"right", median_of(m, &phases::right)},
              {"merge", median_of(m, &phases::merge)},
              {"total", apps::median(totals_of(m))},
              {"end", median_of(m, &phases::end)},
              {"totals", totals_of(m)}}},
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
        if (m.name == "penstock") ours = apps::median(totals_of(m));
    for (const method_run& m : s.runs)
        if (m.name != "penstock" && ours > 0) out[m.name] = apps::median(totals_of(m)) / ours;
    return out;
}

}  // namespace

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

void run_session::say_summary() const {
    for (const std::string& note : notes) apps::say(note);
    const tile_set& t = job.tiles;
    apps::say(words(t.places.size(), " tiles, image of ", t.image_width, " by ", t.image_height,
                    ", ", job.convolutions, " convolutions; ", device_of(*this), " left of column ",
                    job.split, ", ", std::to_string(job.threads), " threads (", row_code_name(),
                    ") right of it; ", pages_shared(*this), " pages shared"));
    const json faster = speedups(*this);
    for (const method_run& m : runs) {
        const auto seconds = [&](const char* form, double phases::*part) {
            return text_of(form, median_of(m, part));
        };
        apps::say(
            words(m.name, text_of(": %.3f s", apps::median(totals_of(m))),
                  seconds(" (map %.3f s", &phases::map), seconds(", input %.3f s", &phases::input),
                  seconds(", compute %.3f s", &phases::compute),
                  seconds(", merge %.3f s)", &phases::merge),
                  faster.contains(m.name)
                      ? text_of("; penstock is %.2f times as fast", faster[m.name].get<double>())
                      : ""));
    }
}

namespace {

status read_tile_size(const std::string& flag, const std::string& text, make_session& m) {
    const std::size_t cross = text.find('x');
    const std::string range = words("from 1 to ", most_tile_side, " in WxH");
    if (cross == std::string::npos || cross == 0 || cross + 1 == text.size())
        return {-EINVAL,
                flag + ": " + apps::shown(text) + " is no size; give one, such as 1392x1040"};
    const auto read = [&](const std::string& side, std::uint32_t& out) {
        return apps::parse_number<std::uint32_t>(flag.c_str(), side, 1, most_tile_side, range, out);
    };
    if (status s = read(text.substr(0, cross), m.tile_width); !s) return s;
    return read(text.substr(cross + 1), m.tile_height);
}

}  // namespace

make_session::make_session()
    : command({"make",
               "Make a file of tiles of a made scene, with noise that the seed alone decides", "",
               apps::command_kind::make}) {}

void make_session::add_options(apps::option_list& add) {
    add.text("-o,--out", out, "File that gets the tiles", "FILE").required();
    add.number("--rows", rows, {1, most_tiles, ""}, "Tiles below each other", "R").required();
    add.number("--columns", columns, {1, most_tiles, ""}, "Tiles beside each other", "C")
        .required();
    add.value("--tile", read_tile_size, *this, "Pixels of a tile, such as 1392x1040", "WxH")
        .required();
    add.number("--overlap", overlap_percent, {0, 90, ""},
               "How much of a tile its neighbour covers, 0 to 90; default: 10", "PERCENT");
    add.number("--jitter", jitter, {0, 1024, "from 0 to 1024"},
               "How far a tile is from its place at most, 0 to 1024; default: 0", "PIXELS");
    add.number("--seed", seed, {0, UINT64_MAX, ""}, "Of noise and places; default: 1", "S");
}

status make_session::check() {
    if (status s = apps::check_not_report(common.json, out); !s) return s;
    if (std::uint64_t{rows} * columns <= most_tiles) return {};
    return apps::failure(-EINVAL, "--rows: ", std::to_string(rows), " rows of ",
                         std::to_string(columns), " tiles are more than ", most_tiles,
                         " tiles; give fewer");
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

void make_session::say_summary() const {
    apps::say(words(out, ": ", std::uint64_t{rows} * columns, " tiles of an image of ",
                    tiles.image_width, " by ", tiles.image_height, ", ",
                    format_size(tiles.file_bytes()), text_of(" in %.2f s", seconds), " by ",
                    std::to_string(threads), " threads"));
}

}  // namespace penstock::stitch

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<stitch::run_session, stitch::make_session>(
        {"penstock-stitch", stitch::about, "use fewer tiles"}, argc, argv);
}
