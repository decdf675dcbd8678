#include "request.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>

#include "common/message.hpp"
#include "penstock/version.hpp"
#include "picture.hpp"
#include "tile.hpp"

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

template <typename Integer>
status number(const char* flag, const std::string& text, Integer least, Integer most,
              Integer& out) {
    if (text.empty()) return {};
    Integer value = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, value);
    if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= most) {
        out = value;
        return {};
    }
    return {-EINVAL, std::string(flag) + ": '" + text + "' is no whole number from " +
                         std::to_string(least) + " to " + std::to_string(most)};
}

struct index_texts {
    std::string tiles, stride, scales, seed;
};

void add_index(CLI::App& app, request& r, index_texts& texts) {
    app.footer(index_details);
    app.add_option("DIR", r.index.folder, "Folder of pictures, searched with all below it")
        ->required();
    apps::add_value(app, "-o,--out", r.index.out, "Folder that becomes the library", "LIB");
    app.get_option("--out")->required();
    apps::add_value(app, "--tiles", texts.tiles,
                    "How many tiles to cut, spread evenly over the pictures; default: all", "N");
    apps::add_value(app, "--stride", texts.stride,
                    "Pixels from tile to tile; default: 32, or less if --tiles needs it", "N");
    apps::add_value(app, "--scales", texts.scales,
                    "Scales of each picture, each half of the one before; default: 4", "N");
    apps::add_value(app, "--seed", texts.seed, "Of the hash functions' random numbers", "N");
    app.add_flag("--strict", r.index.strict, "Make a picture that cannot be read an error");
    apps::add_value(app, "--workers", r.common.workers, "Threads; default: one for every processor",
                    "N");
    app.add_flag("--json", r.common.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", r.common.quiet, "Print no summary; errors and warnings still appear");
}

void add_make(CLI::App& app, request& r) {
    app.footer(make_details);
    app.add_option("INPUT", r.make.input, "Picture to make the collage of")->required();
    app.add_option("LIB", r.make.library, "Library made by penstock-collage index")->required();
    apps::add_value(app, "-o,--out", r.make.out, "File for the collage", "OUT");
    app.get_option("--out")->required();
    apps::add_value(app, "--method", r.make.method,
                    "penstock: one kernel that reads the library itself; or a baseline: cpu (all "
                    "cores), cuda (two kernels, the CPU reads between them)",
                    "NAME");
    apps::add_common_flags(app, r.common);
}

status check(request& r, const index_texts& texts) {
    if (r.is_index) {
        if (status s = number<std::uint64_t>("--tiles", texts.tiles, 1, std::uint64_t{1} << 31,
                                             r.index.tiles);
            !s)
            return s;
        if (status s = number<std::uint32_t>("--stride", texts.stride, 1, 4096, r.index.stride); !s)
            return s;
        if (status s = number<std::uint32_t>("--scales", texts.scales, 1, 16, r.index.scales); !s)
            return s;
        if (status s = number<std::uint64_t>("--seed", texts.seed, 0, UINT64_MAX, r.index.seed); !s)
            return s;
        return apps::settle_options(r.common, r.settings);
    }
    const std::string& method = r.make.method;
    if (method != "penstock" && method != "cpu" && method != "cuda")
        return {-EINVAL,
                "--method: " + apps::shown(method) + " is no method; give penstock, cpu or cuda"};
    if (status s = check_output_name(r.make.out); !s) return s;
    if (status s = apps::settle_options(r.common, r.settings); !s) return s;
    // A record of the library lies on one page of this size; larger pages would load bytes
    // that no reader asked for.
    if (r.common.page.empty() && std::getenv("PENSTOCK_PAGE") == nullptr)
        r.settings.page_bytes = record_stride_bytes;
    return r.settings.check();
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-collage");
    app.require_subcommand(1);
    app.set_version_flag("--version", std::string("penstock ") + version());
    index_texts texts;
    CLI::App* const index =
        app.add_subcommand("index", "Make a library of tiles from a folder of pictures");
    add_index(*index, out, texts);
    CLI::App* const make = app.add_subcommand("make", "Make a collage of a picture");
    add_make(*make, out);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    out.is_index = index->parsed();
    const status s = check(out, texts);
    if (s.ok()) return std::nullopt;
    apps::say(s.message);
    return apps::exit_usage;
}

}  // namespace penstock::collage
