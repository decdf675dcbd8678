#include "commands.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "copy_batch.hpp"
#include "penstock/version.hpp"

namespace penstock::cp {

namespace {

constexpr std::size_t most_files_at_once = 128;

status report(const runtime& rt, const request& wanted, const copy_totals& sum) {
    const double rate =
        sum.seconds > 0 ? static_cast<double>(sum.bytes - sum.hole_bytes) / sum.seconds : 0;
    if (wanted.common.json)
        return apps::print_json(apps::line_of({{"program", "penstock cp"},
                                               {"version", version()},
                                               {"files", sum.files},
                                               {"bytes", sum.bytes},
                                               {"hole_bytes", sum.hole_bytes},
                                               {"seconds", sum.seconds},
                                               {"bytes_per_second", rate},
                                               {"fsync", wanted.settings.fsync},
                                               {"verified", wanted.settings.verify},
                                               {"verify_seconds", sum.verify_seconds},
                                               {"runtime", apps::json_of(rt)}}));
    if (wanted.common.quiet) return {};
    std::string text =
        apps::with_commas(sum.files) + (sum.files == 1 ? " file, " : " files, ") +
        bytes_text(sum.bytes) +
        (sum.hole_bytes > 0 ? " (" + apps::with_commas(sum.hole_bytes) + " of them holes)" : "") +
        " copied in " + apps::text_of("%.3f s", sum.seconds) + ", " +
        apps::text_of("%.2f GB/s", 1e-9 * rate);
    if (wanted.settings.verify)
        text += "; read back and compared in " + apps::text_of("%.3f s", sum.verify_seconds);
    return apps::print_json(text + "\n");
}

// On CPU threads a cache beyond what is in flight costs the first touch of its memory.
void choose_cache(options& o) {
    constexpr std::uint64_t enough = std::uint64_t{64} << 20;
    if (o.where == backend::cpu && !o.cache_bytes)
        o.cache_bytes = std::max(enough, 64 * o.page_bytes);
}

// Each file of a batch has two descriptors here, and its copy one for writing in the runtime. Of
// others the runtime keeps half of the process's limit at most, and opens the rest anew by itself.
std::size_t files_at_once(const runtime& rt) {
    constexpr rlim_t others = 40;
    rlimit limit{};
    const std::size_t most =
        std::clamp<std::size_t>(rt.settings().max_files / 4, 1, most_files_at_once);
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
    const rlim_t ours = limit.rlim_cur / 2, room = ours > others ? ours - others : 0;
    return std::clamp<std::size_t>(static_cast<std::size_t>(room / 3), 1, most);
}

// What failed has been said and is counted, except what is returned.
status copy_all(runtime& rt, const request& wanted, const std::vector<planned_copy>& plans,
                std::vector<cut>& cuts, copy_totals& sum) {
    std::uint64_t bytes = 0;
    struct stat facts {};
    for (const planned_copy& plan : plans)
        bytes +=
            ::stat(plan.from.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
    const apps::progress bar(
        "copying", bytes, [&] { return rt.stats().bytes_written; }, !wanted.common.quiet);
    const std::size_t at_once = files_at_once(rt);
    for (std::size_t first = 0; first < plans.size() && !was_interrupted(); first += at_once) {
        batch some(rt, wanted.settings, cuts);
        for (std::size_t i = first; i < std::min(plans.size(), first + at_once); ++i)
            if (const status failed = some.add(plans[i]); !failed) {
                apps::say(failed.message);
                ++sum.failed;
            }
        if (status failed = some.copy(sum); !failed) return failed;
    }
    return {};
}

// A runtime and one file take so many; with fewer, copies would be begun that cannot be ended.
status check_descriptors() {
    constexpr rlim_t least = 32;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least) return {};
    return {-EMFILE, "the limit on open files is " + std::to_string(limit.rlim_cur) +
                         ", and copying takes " + std::to_string(least) + "; raise it (ulimit -n)"};
}

status copy_files(const request& wanted, options settings) {
    if (status failed = check_descriptors(); !failed) return failed;
    if (status failed = apps::watch_signals(); !failed) return failed;
    std::vector<planned_copy> plans;
    if (status failed =
            plan_copies({wanted.names.begin(), wanted.names.end() - 1}, wanted.names.back(), plans);
        !failed)
        return failed;
    choose_cache(settings);
    std::unique_ptr<runtime> rt;
    if (status failed = apps::create_runtime(settings, wanted.common.quiet, rt); !failed)
        return failed;
    std::vector<cut> cuts;
    copy_totals sum;
    const status ended = copy_all(*rt, wanted, plans, cuts, sum);
    if (!cuts.empty()) rt.reset();
    for (const cut& pending : cuts)
        if (const int code = pending.make(); code != 0)
            apps::say(apps::shown(pending.path) + ": " + error_text(code) +
                      "; this copy failed, and has bytes behind its end");
    if (!ended) return ended;
    if (was_interrupted())
        return {-ECANCELED, "interrupted; " + apps::with_commas(sum.files) + " of " +
                                apps::with_commas(plans.size()) + " files were copied"};
    return sum.failed == 0 ? report(*rt, wanted, sum) : status{-EIO, ""};  // it has been said
}

}  // namespace

int run(const request& wanted) {
    options settings;
    status failed = apps::settle_options(wanted.common, settings);
    if (failed.ok() && wanted.names.size() < 2)
        failed = {-EINVAL,
                  "only " + apps::shown(wanted.names.back()) +
                      " was given; name a file and where its copy goes, see penstock cp --help"};
    if (!failed.ok()) {
        apps::say(failed.message);
        return apps::exit_usage;
    }
    settings.roots = {
        "."};  // names on a command line start at the working directory, whatever kernels may open
    settings.writable = true;
    const status ended = copy_files(wanted, settings);
    if (!ended.ok() && !ended.message.empty()) apps::say(ended.message);
    return ended.ok() ? apps::exit_done : apps::exit_failed;
}

}  // namespace penstock::cp
