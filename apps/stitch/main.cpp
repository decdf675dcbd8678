// penstock-stitch: puts tiles of a microscope together. The texts below say what it promises.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "session.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

namespace {

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

status read_methods(const std::string& flag, const std::string& text, run_session& out) {
    out.methods.clear();
    out.all = text == "all";
    if (out.all) return {};
    const std::vector<std::string> known = apps::names_of(all_methods);
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        const std::string name = text.substr(at, comma - at);
        if (std::find(known.begin(), known.end(), name) == known.end())
            return {-EINVAL, flag + ": " + apps::shown(name) +
                                 " is no method; give penstock, private, managed, cpu or all"};
        if (std::find(out.methods.begin(), out.methods.end(), name) != out.methods.end())
            return {-EINVAL, flag + ": " + apps::shown(name) + " is given twice; give it once"};
        out.methods.push_back(name);
        at = comma + 1;
    }
    return {};
}

status read_split(const std::string& flag, const std::string& text, std::optional<double>& out) {
    out.reset();
    if (text == "auto") return {};
    return apps::parse_number<double>(flag.c_str(), text, 0, 1, "from 0 to 1, and not auto",
                                      out.emplace());
}

// The page cache of the runtime is not used, and its memory is wanted for regions.
constexpr std::uint64_t cache_bytes = 16u << 20, table_bytes = 4u << 20, staging_bytes = 4u << 20;

bool only_cpu(const run_session& s) {
    return !s.all && std::all_of(s.methods.begin(), s.methods.end(),
                                 [](const std::string& name) { return name == "cpu"; });
}

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

// What is left out is said.
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
    if (status failed = apps::check_not_input(s.out, {&s.job.tiles.file}); !failed) return failed;
    return s.image.open(s.out, s.job.tiles.image_width, s.job.tiles.image_height);
}

}  // namespace

run_session::run_session() : command({"run", "Make the image", details, apps::command_kind::run}) {}

void run_session::add_options(apps::option_list& add) {
    add.operand("TILES", tiles, "File of tiles");
    add.text("-o,--out", out, "File that gets the image", "FILE").required();
    add.value(
        "--method", read_methods, *this,
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

// All methods, one after the other; their images are compared. The files are opened here, when a
// signal no longer leaves a passing file behind.
status run_session::run() {
    job.whole_pages = merge == "pages";
    if (status failed = open_files(*this); !failed) return failed;
    if (status failed = start_processors(*this); !failed) return failed;
    if (status failed = divide(*this); !failed) return failed;
    if (all) choose_all(*this);
    for (const std::string& name : methods) {
        if (name == "managed")
            if (status can = check_managed(job); !can) return can;
        if (status failed = run_method(*this, apps::method_named(all_methods, name)); !failed)
            return failed;
    }
    return image.commit();
}

}  // namespace penstock::stitch

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<stitch::run_session, stitch::make_session>(
        {"penstock-stitch", stitch::about, "use fewer tiles"}, argc, argv);
}
