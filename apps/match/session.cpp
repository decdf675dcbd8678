#include "report.hpp"

#include <bit>
#include <cerrno>

#include "common/message.hpp"
#include "common/stopwatch.hpp"

namespace penstock::match {

namespace {

std::string shown_match(const match_job& job, std::uint64_t key) {
    if (key == no_match) return "no match";
    const image_place at = place_of_image(job, key >> 32);
    return "image " + std::to_string(at.image) + " of " +
           apps::shown(job.databases[at.database].path) + " at distance " +
           std::to_string(std::bit_cast<float>(static_cast<std::uint32_t>(key)));
}

}  // namespace

image_place place_of_image(const match_job& job, std::uint64_t number) {
    image_place at{0, number};
    while (at.image >= job.databases[at.database].header.image_count)
        at.image -= job.databases[at.database++].header.image_count;
    return at;
}

status open_files(session& s) {
    apps::stopwatch watch;
    const search_request& asked = s.asked.search;
    s.job.threshold = asked.threshold;
    s.job.whole = asked.whole;
    s.job.windows = asked.windows;
    s.job.quiet = s.asked.common.quiet;
    s.job.settings = s.asked.settings;
    if (status failed = open_images(asked.queries, s.job.queries); !failed) return failed;
    for (const std::string& path : asked.databases) {
        image_file& one = s.job.databases.emplace_back();
        if (status failed = open_images(path, one); !failed) return failed;
        if (status failed = check_shapes(s.job.queries, one); !failed) return failed;
    }
    if (s.job.image_count() > most_images)
        return {-EINVAL, "the databases have " + apps::with_commas(s.job.image_count()) +
                             " images; at most " + apps::with_commas(most_images) +
                             " can be told apart, so search in fewer at a time"};
    s.check_seconds = watch.lap();
    return {};
}

status run_method(session& s, const std::string& name) {
    method_report report;
    report.name = name;
    status ended = name == "cpu"    ? match_with_cpu(s.job, report)
                   : name == "cuda" ? match_with_cuda(s.job, report)
                                    : match_with_penstock(s.job, report, s.notes);
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (ended.ok() && report.totals.code != 0)
        ended = match_error(s.job, report.totals.failed_database, report.totals.code);
    s.runs.push_back(std::move(report));
    return ended;
}

status compare_methods(session& s) {
    if (status failed = run_method(s, "cpu"); !failed) return failed;
    s.runs.clear();
    for (const char* name : {"cpu", "cuda", "penstock"}) {
        const status ended = run_method(s, name);
        if (ended.code == -ENODEV && std::string(name) == "cuda") {
            s.runs.pop_back();
            continue;
        }
        if (!ended.ok()) return ended;
        const std::vector<std::uint64_t>&expected = s.runs.front().best,
              &found = s.runs.back().best;
        for (std::size_t i = 0; i < expected.size(); ++i)
            if (found[i] != expected[i])
                return {-EILSEQ, "query " + std::to_string(i) + ": cpu found " +
                                     shown_match(s.job, expected[i]) + ", and " + name + " found " +
                                     shown_match(s.job, found[i]) + "; please report this"};
    }
    return {};
}

}  // namespace penstock::match
