#include "request.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "penstock/version.hpp"
#include "sharpen.hpp"
#include "tile_set.hpp"

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

struct given_text {
    apps::common_flags common;
    std::string methods, convolutions, repetitions, split, merge, rows, columns, tile, overlap,
        jitter, seed;
};

// The last name of the flag is the one that it is found by.
void add_required(CLI::App& app, const std::string& flag, std::string& out, const std::string& text,
                  const char* form) {
    apps::add_value(app, flag, out, text, form);
    app.get_option(flag.substr(flag.find(',') + 1))->required();
}

void add_run(CLI::App& app, run_request& r, given_text& given) {
    CLI::App* const run = app.add_subcommand("run", "Make the image");
    run->footer(details);
    run->add_option("TILES", r.tiles, "File of tiles")->required();
    add_required(*run, "-o,--out", r.out, "File that gets the image", "FILE");
    apps::add_value(
        *run, "--method", given.methods,
        "One or several with commas between them, or all: penstock (regions; the default), private "
        "(a buffer of its own for the GPU, merged), managed (managed memory that both "
        "write), cpu (all cores). The last one's image stays",
        "NAMES");
    apps::add_value(*run, "--convolutions", given.convolutions,
                    "How often each tile is sharpened, 0 to 32; default: 1", "N");
    apps::add_value(*run, "--split", given.split,
                    "Part of the columns that is left of the line, 0 to 1, or auto (the default): "
                    "by measuring both processors",
                    "PART");
    apps::add_value(*run, "--merge", given.merge,
                    "How a region's changes are written: bytes (the default), exactly what "
                    "changed; pages, in whole pages where much did",
                    "HOW");
    apps::add_value(*run, "--repetitions", given.repetitions,
                    "Of each method, 1 to 1000, and report the medians; default: 1", "K");
    apps::add_common_flags(*run, given.common);
}

CLI::App* add_make(CLI::App& app, make_request& m, given_text& given) {
    CLI::App* const make = app.add_subcommand(
        "make", "Make a file of tiles of a made scene, with noise that the seed alone decides");
    add_required(*make, "-o,--out", m.out, "File that gets the tiles", "FILE");
    add_required(*make, "--rows", given.rows, "Tiles below each other", "R");
    add_required(*make, "--columns", given.columns, "Tiles beside each other", "C");
    add_required(*make, "--tile", given.tile, "Pixels of a tile, such as 1392x1040", "WxH");
    apps::add_value(*make, "--overlap", given.overlap,
                    "How much of a tile its neighbour covers, 0 to 90; default: 10", "PERCENT");
    apps::add_value(*make, "--jitter", given.jitter,
                    "How far a tile is from its place at most, 0 to 1024; default: 0", "PIXELS");
    apps::add_value(*make, "--seed", given.seed, "Of noise and places; default: 1", "S");
    apps::add_value(*make, "--workers", given.common.workers,
                    "Threads; default: one for every processor", "N");
    make->add_flag("--json", given.common.json, "Print exactly one JSON object on standard output");
    make->add_flag("--quiet", given.common.quiet,
                   "Print no summary; errors and warnings still appear");
    return make;
}

status read_methods(const std::string& text, run_request& r) {
    r.all = text == "all";
    if (r.all) return {};
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        const std::string name = text.substr(at, comma - at);
        if (name != "penstock" && name != "private" && name != "managed" && name != "cpu")
            return {-EINVAL, "--method: " + apps::shown(name) +
                                 " is no method; give penstock, private, managed, cpu or all"};
        if (std::find(r.methods.begin(), r.methods.end(), name) != r.methods.end())
            return {-EINVAL, "--method: " + apps::shown(name) + " is given twice; give it once"};
        r.methods.push_back(name);
        at = comma + 1;
    }
    return {};
}

status read_run(const given_text& given, run_request& r) {
    if (status s = read_methods(given.methods.empty() ? "penstock" : given.methods, r); !s)
        return s;
    if (status s =
            apps::parse_number<std::uint32_t>("--convolutions", given.convolutions, 0,
                                              most_convolutions, "from 0 to 32", r.convolutions);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint32_t>("--repetitions", given.repetitions, 1, 1000,
                                                     "from 1 to 1000", r.repetitions);
        !s)
        return s;
    if (!given.merge.empty() && given.merge != "bytes" && given.merge != "pages")
        return {-EINVAL, "--merge: " + apps::shown(given.merge) +
                             " is no way to merge; give bytes or pages"};
    r.whole_pages = given.merge == "pages";
    if (given.split.empty() || given.split == "auto") return {};
    double split = 0;
    if (status s = apps::parse_number<double>("--split", given.split, 0, 1,
                                              "from 0 to 1, and not auto", split);
        !s)
        return s;
    r.split = split;
    return {};
}

status read_tile_size(const std::string& text, make_request& m) {
    const std::size_t cross = text.find('x');
    const std::string range = "from 1 to " + apps::with_commas(most_tile_side) + " in WxH";
    if (cross == std::string::npos || cross == 0 || cross + 1 == text.size())
        return {-EINVAL,
                "--tile: " + apps::shown(text) + " is no size; give one, such as 1392x1040"};
    if (status s = apps::parse_number<std::uint32_t>("--tile", text.substr(0, cross), 1,
                                                     most_tile_side, range, m.tile_width);
        !s)
        return s;
    return apps::parse_number<std::uint32_t>("--tile", text.substr(cross + 1), 1, most_tile_side,
                                             range, m.tile_height);
}

status read_make(const given_text& given, make_request& m) {
    const std::string range = "from 1 to " + apps::with_commas(most_tiles);
    if (status s =
            apps::parse_number<std::uint32_t>("--rows", given.rows, 1, most_tiles, range, m.rows);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint32_t>("--columns", given.columns, 1, most_tiles,
                                                     range, m.columns);
        !s)
        return s;
    if (std::uint64_t{m.rows} * m.columns > most_tiles)
        return {-EINVAL, "--rows: " + given.rows + " rows of " + given.columns +
                             " tiles are more than " + apps::with_commas(most_tiles) +
                             " tiles; give fewer"};
    if (status s = read_tile_size(given.tile, m); !s) return s;
    if (status s = apps::parse_number<std::uint32_t>("--overlap", given.overlap, 0, 90,
                                                     "from 0 to 90", m.overlap_percent);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint32_t>("--jitter", given.jitter, 0, 1024,
                                                     "from 0 to 1024", m.jitter);
        !s)
        return s;
    return apps::parse_number<std::uint64_t>("--seed", given.seed, 0, UINT64_MAX,
                                             "that fits 64 bits and is not negative", m.seed);
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-stitch");
    given_text given;
    app.set_version_flag("--version", std::string("penstock ") + version());
    app.require_subcommand(1);
    add_run(app, out.run, given);
    const CLI::App* const make = add_make(app, out.make, given);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    out.is_make = make->parsed();
    out.json = given.common.json;
    out.quiet = given.common.quiet;
    status bad = out.is_make ? read_make(given, out.make) : read_run(given, out.run);
    if (bad.ok()) bad = apps::settle_options(given.common, out.settings);
    if (bad.ok()) return std::nullopt;
    apps::say(bad.message);
    return apps::exit_usage;
}

}  // namespace penstock::stitch
