// penstock-match: finds the first image like each query in databases of images. The texts below say
// what it promises.
#include <bit>
#include <cerrno>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/process.hpp"
#include "session.hpp"

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

using match_method = apps::method<status(const match_job&, match_report&)>;
constexpr match_method methods[] = {
    {"penstock", apps::runs_on::anywhere, match_with_penstock},
    {"cpu", apps::runs_on::cpu, match_with_cpu},
    {"cuda", apps::runs_on::gpu, match_with_cuda},
};

std::string shown_match(const match_job& job, std::uint64_t key) {
    if (key == no_match) return "no match";
    const image_place at = place_of_image(job, key >> 32);
    return "image " + std::to_string(at.image) + " of " +
           apps::shown(job.databases[at.database].path) + " at distance " +
           std::to_string(std::bit_cast<float>(static_cast<std::uint32_t>(key)));
}

std::string difference(const match_job& job, const match_report& a, const match_report& b) {
    for (std::size_t i = 0; i < a.best.size(); ++i)
        if (a.best[i] != b.best[i])
            return "query " + std::to_string(i) + ": " + a.name + " found " +
                   shown_match(job, a.best[i]) + ", and " + b.name + " found " +
                   shown_match(job, b.best[i]);
    return {};
}

}  // namespace

image_place place_of_image(const match_job& job, std::uint64_t number) {
    image_place at{0, number};
    while (at.image >= job.databases[at.database].header.image_count)
        at.image -= job.databases[at.database++].header.image_count;
    return at;
}

search_session::search_session() : command({"match", about, details, apps::command_kind::main}) {}

void search_session::add_options(apps::option_list& add) {
    add.operand("QUERIES", queries, "File of images to search for");
    add.operands("DATABASE", databases, "Files of images to search in, the first one first");
    add.number("--threshold", job.threshold,
               {1e-37f, 3e38f, "between 1e-37 and 3e38; give a squared distance, such as 0.5"},
               "What the squared distance of a match is below", "D")
        .required();
    add.text("--out", out, "Write the lines to this file instead of standard output", "FILE");
    add.choice("--method", method, apps::names_of(methods), "method",
               "penstock, or a baseline: cpu (all cores, memory maps), cuda (GPU, the host reads)",
               "NAME");
    add.flag("--compare", compare,
             "Run every method there is, after a run of cpu that warms the OS page cache; "
             "check that all agree and report their times");
    add.flag("--whole", job.whole,
             "Compare to the end also what cannot match any more; the lines are the same. For "
             "measuring");
    add.flag("!--no-windows", job.windows,
             "Read every page by a request to the host, even what the OS page cache has. GPU "
             "only; for measuring");
}

status search_session::open() {
    apps::stopwatch watch;
    job.quiet = common.quiet;
    job.settings = settings;
    if (status failed = open_images(queries, job.queries); !failed) return failed;
    for (const std::string& path : databases) {
        image_file& file = job.databases.emplace_back();
        if (status failed = open_images(path, file); !failed) return failed;
        if (status failed = check_shapes(job.queries, file); !failed) return failed;
    }
    if (job.image_count() > most_images)
        return {-EINVAL, "the databases have " + apps::with_commas(job.image_count()) +
                             " images; at most " + apps::with_commas(most_images) +
                             " can be told apart, so search in fewer at a time"};
    check_seconds = watch.lap();
    return lines.open(out);
}

status search_session::run() {
    const auto by = [this](const match_method& chosen, match_report& report) {
        status ended = chosen.run(job, report);
        const match_totals& totals = report.totals;
        return ended.ok() && totals.code != 0
                   ? match_error(job, totals.failed_database, totals.code)
                   : ended;
    };
    const auto differ = [this](const match_report& first, const match_report& last) {
        return difference(job, first, last);
    };
    if (status failed = compare ? apps::compare_methods(methods, runs, by, differ)
                                : apps::run_method(apps::method_named(methods, method), runs, by);
        !failed)
        return failed;
    apps::stopwatch watch;
    if (!out.empty() || !common.json) {
        if (status failed = write_lines(*this, lines); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    output_seconds = watch.lap();
    return {};
}

}  // namespace penstock::match

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<match::search_session, match::make_session>(
        {"penstock-match", "", "search for fewer images at a time"}, argc, argv);
}
