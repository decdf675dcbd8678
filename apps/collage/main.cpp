// penstock-collage: makes libraries of tiles and collages from them. The texts below say what it
// promises.
#include <cstdlib>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "session.hpp"

namespace penstock::collage {

namespace {

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
};

}  // namespace

index_session::index_session()
    : command({"index", "Make a library of tiles from a folder of pictures", index_details,
               apps::command_kind::make}) {}

void index_session::add_options(apps::option_list& add) {
    add.operand("DIR", asked.folder, "Folder of pictures, searched with all below it");
    add.text("-o,--out", asked.out, "Folder that becomes the library", "LIB").required();
    add.number("--tiles", asked.tiles, {1, most_tiles, ""},
               "How many tiles to cut, spread evenly over the pictures; default: all", "N");
    add.number("--stride", asked.stride, {1, 4096, ""},
               "Pixels from tile to tile; default: 32, or less if --tiles needs it", "N");
    add.number("--scales", asked.scales, {1, 16, ""},
               "Scales of each picture, each half of the one before; default: 4", "N");
    add.number("--seed", asked.seed, {0, UINT64_MAX, ""}, "Of the hash functions' random numbers",
               "N");
    add.flag("--strict", asked.strict, "Make a picture that cannot be read an error");
}

status index_session::check() {
    asked.threads = apps::thread_count(settings.worker_threads);
    asked.quiet = common.quiet;
    return {};
}

status index_session::run() {
    status ended = index_library(asked, report);
    if (!asked.strict || ended.ok())
        for (const std::string& complaint : report.left_out) apps::say(complaint);
    return ended;
}

make_session::make_session()
    : command({"make", "Make a collage of a picture", make_details, apps::command_kind::run}) {}

void make_session::add_options(apps::option_list& add) {
    add.operand("INPUT", input, "Picture to make the collage of");
    add.operand("LIB", library_path, "Library made by penstock-collage index");
    add.text("-o,--out", out, "File for the collage", "OUT").required();
    add.choice("--method", method, apps::names_of(methods), "method",
               "penstock: one kernel that reads the library itself; or a baseline: cpu (all "
               "cores), cuda (two kernels, the CPU reads between them)",
               "NAME");
}

status make_session::check() {
    // A record of the library lies on one page of this size; larger pages would load bytes
    // that no reader asked for.
    if (common.page.empty() && std::getenv("PENSTOCK_PAGE") == nullptr)
        settings.page_bytes = record_stride_bytes;
    if (status s = settings.check(); !s) return s;
    return check_output_name(out);
}

status make_session::open() {
    apps::stopwatch watch;
    if (status failed = open_library(library_path, from); !failed) return failed;
    library_seconds = watch.lap();
    if (status failed = file.open(out); !failed) return failed;
    if (status failed = load_picture(input, in); !failed) return failed;
    decode_seconds = watch.lap();
    return {};
}

status make_session::run() {
    picture made;
    const auto& chosen = apps::method_named(methods, method);
    report.name = chosen.name;
    if (status failed = chosen.run({from, in, settings, common.quiet}, made, report); !failed)
        return failed;
    apps::stopwatch watch;
    if (status failed = write_picture(out, made, file); !failed) return failed;
    encode_seconds = watch.lap();
    return {};
}

}  // namespace penstock::collage

int main(int argc, char** argv) {
    using namespace penstock::collage;
    return penstock::apps::run_program<index_session, make_session>(
        {"penstock-collage", about, "use a smaller picture or library"}, argc, argv);
}
