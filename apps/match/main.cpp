// penstock-match: finds the first image like each query in databases of images. The texts below say
// what it promises.
#include <bit>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/program.hpp"
#include "common/report_text.hpp"
#include "methods.hpp"

namespace penstock::match {

namespace {

using apps::text_of;
using apps::with_commas;
using nlohmann::json;

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

struct search_session final : apps::command {
    search_session() : command({"match", about, details, apps::command_kind::main}) {}
    void add_options(apps::option_list& add) override;
    status open() override;
    status run() override;
    [[nodiscard]] json json_of() const override;
    void say_summary() const override;
    [[nodiscard]] std::string difference(const match_report& a, const match_report& b) const;
    status write_lines();

    // What was asked for, beside what the job has.
    std::string queries, out, method = "penstock";  // out: empty for standard output
    std::vector<std::string> databases;
    bool compare = false;

    match_job job;
    apps::output_file lines;
    std::vector<match_report> runs;  // the last one is the one whose lines are printed
    double check_seconds = 0;        // opening and checking the files
    double output_seconds = 0;
};

using match_method = apps::method<status(const match_job&, match_report&)>;
constexpr match_method methods[] = {
    {"penstock", apps::runs_on::anywhere, match_with_penstock},
    {"cpu", apps::runs_on::cpu, match_with_cpu},
    {"cuda", apps::runs_on::gpu, match_with_cuda},
};

// Where the best match of a query is.
struct image_place {
    std::size_t database;
    std::uint64_t image;
    float distance;
};

image_place place_of_match(const match_job& job, std::uint64_t key) {
    image_place at{0, key >> 32, std::bit_cast<float>(static_cast<std::uint32_t>(key))};
    while (at.image >= job.databases[at.database].header.image_count)
        at.image -= job.databases[at.database++].header.image_count;
    return at;
}

std::string shown_match(const match_job& job, std::uint64_t key) {
    if (key == no_match) return "no match";
    const image_place at = place_of_match(job, key);
    return "image " + std::to_string(at.image) + " of " +
           apps::shown(job.databases[at.database].path) + " at distance " +
           std::to_string(at.distance);
}

std::string search_session::difference(const match_report& a, const match_report& b) const {
    for (std::size_t i = 0; i < a.best.size(); ++i)
        if (a.best[i] != b.best[i])
            return "query " + std::to_string(i) + ": " + a.name + " found " +
                   shown_match(job, a.best[i]) + ", and " + b.name + " found " +
                   shown_match(job, b.best[i]);
    return {};
}

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
             "Run every method there is, whatever --method says, after a run of cpu that warms the "
             "OS page cache; check that all agree and report their times");
    add.flag("--whole", job.whole,
             "Compare to the end also what cannot match any more; the lines are the same. For "
             "measuring");
    add.windows_flag(job.windows);
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
        return {-EINVAL, "the databases have " + with_commas(job.image_count()) +
                             " images; at most " + with_commas(most_images) +
                             " can be told apart, so search in fewer at a time"};
    std::vector<std::string> inputs = databases;
    inputs.push_back(queries);
    if (status failed = apps::check_not_input(out, inputs); !failed) return failed;
    if (status failed = apps::check_not_report(common.json, out); !failed) return failed;
    check_seconds = watch.lap();
    return lines.open(out);
}

status search_session::run() {
    const auto by = [this](const match_method& chosen, match_report& report) {
        status ended = chosen.run(job, report);
        const match_totals& totals = report.totals;
        return ended.ok() && totals.code != 0 ? match_error(job, totals.failed, totals.code)
                                              : ended;
    };
    const auto differ = [this](const match_report& first, const match_report& last) {
        return difference(first, last);
    };
    const status ended = compare ? apps::compare_methods(methods, runs, by, differ)
                                 : apps::run_method(apps::method_named(methods, method), runs, by);
    if (!ended.ok()) return ended;
    apps::stopwatch watch;
    if (!out.empty() || !common.json) {
        if (status failed = write_lines(); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    output_seconds = watch.lap();
    return {};
}

// Query, database, image, distance.
status search_session::write_lines() {
    std::string text;
    const std::vector<std::uint64_t>& best = runs.back().best;
    for (std::size_t i = 0; i < best.size(); ++i) {
        text += std::to_string(i);
        if (best[i] == no_match) {
            text += "\t-\t-\t-\n";
        } else {
            const image_place at = place_of_match(job, best[i]);
            // Nine digits tell any two of these numbers apart.
            text += "\t" + apps::field_of(job.databases[at.database].path) + "\t" +
                    std::to_string(at.image) + "\t" + text_of("%.9g", at.distance) + "\n";
        }
        if (text.size() <= (1u << 20)) continue;
        if (status failed = lines.write(text.data(), text.size()); !failed) return failed;
        text.clear();
    }
    return lines.write(text.data(), text.size());
}

// A squared difference and its sum: a subtraction, and a multiplication and addition in one.
double gflops(const match_report& r) {
    const double seconds = r.median_seconds();
    return seconds > 0 ? 3e-9 * static_cast<double>(r.totals.numbers) / seconds : 0.0;
}

json json_of_run(const match_report& r) {
    json out = apps::json_of_work(r);
    out.update({{"matched", r.totals.matched},
                {"pairs_compared", r.totals.pairs},
                {"numbers_compared", r.totals.numbers},
                {"gflops", gflops(r)},
                {"bytes_read", r.bytes_read}});
    out["seconds"]["match"] = r.median_seconds();
    return out;
}

json json_of_match(const match_job& job, std::uint64_t key) {
    if (key == no_match) return nullptr;
    const image_place at = place_of_match(job, key);
    return {{"database", at.database}, {"image", at.image}, {"distance", at.distance}};
}

json search_session::json_of() const {
    const match_report& last = runs.back();
    json out = json_of_run(last), files = json::array();
    for (const image_file& file : job.databases)
        files.push_back({{"path", file.path},
                         {"images", file.header.image_count},
                         {"bytes", file.header.data_bytes()}});
    out["queries"] = {{"path", job.queries.path}, {"images", job.queries.header.image_count}};
    out["shape"] = shape_of(job.queries.header);
    out["databases"] = files;
    out["threshold"] = job.threshold;
    out["whole"] = job.whole;
    out["pairs"] = job.queries.header.image_count * job.image_count();
    out["seconds"]["check"] = check_seconds;
    out["seconds"]["output"] = output_seconds;
    if (compare)
        for (const match_report& run : runs) out["compared"].push_back(json_of_run(run));
    if (this->out.empty()) {
        out["matches"] = json::array();
        for (const std::uint64_t key : last.best) out["matches"].push_back(json_of_match(job, key));
    } else {
        out["output"] = this->out;
    }
    out["runtime"] = apps::runtime_of(last);
    return out;
}

void search_session::say_summary() const {
    for (const match_report& r : runs) apps::say_notes(r);
    for (const match_report& r : runs)
        apps::say(r.name + " on " + r.backend + " (" + r.note +
                  "): " + with_commas(r.totals.matched) + " of " + with_commas(r.best.size()) +
                  " queries matched in " + text_of("%.3f s", r.median_seconds()) + ", windows " +
                  text_of("%.3f s", r.window_seconds) + ", start " +
                  text_of("%.3f s", r.start_seconds) + "; " + with_commas(r.totals.pairs) +
                  " pairs of images compared, " + text_of("%.1f", gflops(r)) + " GFLOP/s");
}

}  // namespace

}  // namespace penstock::match

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_program<match::search_session, match::make_session>(
        {"penstock-match", "", "search for fewer images at a time"}, argc, argv);
}
