#include "request.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstring>

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "image_file.hpp"

namespace penstock::match {

namespace {

constexpr const char* about =
    "Finds for each query image the first image of the databases, in the order in which they are "
    "given, whose squared Euclidean\n"
    "distance is below a threshold. Prints query, database, image and distance, separated by tabs, "
    "one line for each query in\n"
    "order; a query without a match has three times - instead. `penstock-match make --help` is "
    "about making such files.\n";

constexpr const char* details =
    "\nQUERIES and each DATABASE are files of images of one shape, as docs/apps/match.md describes "
    "them. The distance is the sum, one\n"
    "number after the other, of the squared differences of single-precision numbers; all methods "
    "find the same bits. A comparison\n"
    "ends as soon as its sum is no longer below the threshold, and the search as soon as every "
    "query has a match.\n"
    "\n"
    "With --json the lines are printed only if there is --out; else they are part of the object, "
    "as `matches`. With --out, the file\n"
    "appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done, also if nothing matched; 1 failed; 2 wrong usage.\n";

constexpr const char* make_about =
    "Makes files of random images to search in: DIR/queries.images and DIR/database-1.images to "
    "DIR/database-N.images. Numbers are\n"
    "even between 0 and 1 and depend on the seed alone. Some queries have a match: it is the query "
    "with a little noise, at a random\n"
    "place of a random database, and, for every other one, again in the database after it.\n";

// "64x64" or "64x64x3".
status shape(const std::string& text, make_request& out) {
    if (text.empty()) return {};
    std::uint32_t sides[3] = {0, 0, 1};
    const char *at = text.data(), *const end = text.data() + text.size();
    int count = 0;
    while (count < 3) {
        const auto parsed = std::from_chars(at, end, sides[count]);
        if (parsed.ec != std::errc()) break;
        ++count;
        at = parsed.ptr;
        if (end - at < 2 || *at != 'x') break;
        ++at;
    }
    const bool fits = at == end && count >= 2 && sides[0] > 0 && sides[1] > 0 && sides[2] > 0 &&
                      sides[0] <= most_floats && sides[1] <= most_floats && sides[2] <= 16 &&
                      std::uint64_t{sides[0]} * sides[1] * sides[2] <= most_floats;
    if (!fits)
        return {-EINVAL, "--shape: " + apps::shown(text) +
                             " is no shape; give width x height, as in 64x64, or with up to 16 "
                             "channels, as in 64x64x3, of at most " +
                             apps::with_commas(most_floats) + " numbers in all"};
    out.width = sides[0], out.height = sides[1], out.channels = sides[2];
    return {};
}

status check_search(request& r, const std::string& threshold) {
    search_request& s = r.search;
    if (s.method != "penstock" && s.method != "cpu" && s.method != "cuda")
        return {-EINVAL,
                "--method: " + apps::shown(s.method) + " is no method; give penstock, cpu or cuda"};
    if (status bad = apps::parse_number<float>(
            "--threshold", threshold, 1e-37f, 3e38f,
            "between 1e-37 and 3e38; give a squared distance, such as 0.5", s.threshold);
        !bad)
        return bad;
    return apps::settle_options(r.common, r.settings);
}

std::optional<int> refused(const status& s) {
    if (s.ok()) return std::nullopt;
    apps::say(s.message);
    return apps::exit_usage;
}

std::optional<int> read_search(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-match");
    app.footer(details);
    std::string threshold;
    search_request& s = out.search;
    app.add_option("QUERIES", s.queries, "File of images to search for")->required();
    app.add_option("DATABASE", s.databases, "Files of images to search in, the first one first")
        ->required();
    apps::add_value(app, "--threshold", threshold, "What the squared distance of a match is below",
                    "D");
    app.get_option("--threshold")->required();
    apps::add_value(app, "--out", s.out, "Write the lines to this file instead of standard output",
                    "FILE");
    apps::add_value(
        app, "--method", s.method,
        "penstock, or a baseline: cpu (all cores, memory maps), cuda (GPU, the host reads)",
        "NAME");
    app.add_flag("--compare", s.compare,
                 "Run every method there is, after a run of cpu that warms the OS page cache; "
                 "check that all agree and report their times");
    app.add_flag("--whole", s.whole,
                 "Compare to the end also what cannot match any more; the lines are the same. For "
                 "measuring");
    app.add_flag("!--no-windows", s.windows,
                 "Read every page by a request to the host, even what the OS page cache has. GPU "
                 "only; for measuring");
    apps::add_common_flags(app, out.common);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    return refused(check_search(out, threshold));
}

std::optional<int> read_make(int argc, char** argv, request& out) {
    CLI::App app(make_about, "penstock-match make");
    make_request& m = out.make;
    std::string queries, images, databases, size, seed, matches, noise;
    app.add_option("DIR", m.folder, "Folder that gets the files; it is made if it is not there")
        ->required();
    apps::add_value(app, "--queries", queries, "Images to search for; default: 2016", "N");
    apps::add_value(app, "--images", images, "Images of each database; default: 25000", "N");
    apps::add_value(app, "--databases", databases, "How many databases; default: 3", "N");
    apps::add_value(
        app, "--shape", size,
        "Width and height of an image, and channels if there are several; default: 64x64",
        "WxH[xC]");
    apps::add_value(app, "--matches", matches,
                    "Fraction of the queries that have a match, 0 to 1; default: 0.5", "F");
    apps::add_value(app, "--noise", noise,
                    "Most by which a number of a match differs, 0 to 1; default: 0.01", "X");
    apps::add_value(app, "--seed", seed, "Of the random numbers", "N");
    apps::add_value(app, "--workers", out.common.workers,
                    "Threads; default: one for every processor", "N");
    app.add_flag("--json", out.common.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", out.common.quiet, "Print no summary; errors and warnings still appear");
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    const auto check = [&]() -> status {
        const std::string count = "from 0 to " + apps::with_commas(most_images);
        if (status s = apps::parse_number<std::uint64_t>("--queries", queries, 0, most_images,
                                                         count, m.queries);
            !s)
            return s;
        if (status s = apps::parse_number<std::uint64_t>("--images", images, 0, most_images, count,
                                                         m.images);
            !s)
            return s;
        if (status s = apps::parse_number<std::uint32_t>("--databases", databases, 1, 1000,
                                                         "from 1 to 1000", m.databases);
            !s)
            return s;
        if (status s =
                apps::parse_number<double>("--matches", matches, 0, 1, "from 0 to 1", m.matches);
            !s)
            return s;
        if (status s = apps::parse_number<double>("--noise", noise, 0, 1, "from 0 to 1", m.noise);
            !s)
            return s;
        if (status s = apps::parse_number<std::uint64_t>(
                "--seed", seed, 0, UINT64_MAX, "that fits 64 bits and is not negative", m.seed);
            !s)
            return s;
        if (status s = shape(size, m); !s) return s;
        return apps::settle_options(out.common, out.settings);
    };
    return refused(check());
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    out.is_make = argc > 1 && std::strcmp(argv[1], "make") == 0;
    return out.is_make ? read_make(argc - 1, argv + 1, out) : read_search(argc, argv, out);
}

}  // namespace penstock::match
