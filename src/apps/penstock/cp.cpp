#include "cp.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/message.hpp"
#include "common/progress.hpp"
#include "common/report_text.hpp"
#include "common/stopwatch.hpp"
#include "copy_files.hpp"
#include "copy_plan.hpp"
#include "penstock/version.hpp"
#include "source_file.hpp"

namespace penstock::cp {

namespace {

constexpr std::size_t most_files_at_once = 128;
constexpr std::uint64_t least_hole_bytes = 64 << 10;  // shorter ones are copied as zeros

// A host handle that is closed with it.
struct handle {
    int fd = -1;
    handle() = default;
    explicit handle(int opened) : fd(opened) {}
    handle(handle&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
    handle& operator=(handle&&) = delete;
    ~handle() {
        if (fd >= 0) ::close(fd);
    }
};

// Where a copy ends that could not be finished: what groups wrote behind that is of no use. Cut when the runtime has ended, for until then it
// may still write back pages that lie behind.
struct cut {
    handle file;
    std::uint64_t bytes = 0;
};

struct totals {
    std::uint64_t files = 0, bytes = 0, hole_bytes = 0, failed = 0;
    double seconds = 0, verify_seconds = 0;
};

std::string bytes_text(std::uint64_t bytes) { return apps::with_commas(bytes) + (bytes == 1 ? " byte" : " bytes"); }

// How far it came, for the end of a message.
std::string reach_of(const planned_copy& plan, const open_copy& copy) {
    return "the first " + apps::with_commas(copy.reached_bytes) + " of " + bytes_text(copy.bytes) + " are in " + apps::shown(plan.to);
}

status reading_failed(const planned_copy& plan, const open_copy& copy) {
    const std::string cure = copy.code == -ESTALE ? "run again when nobody writes to it" : apps::cure_of_reading(copy.code, instead);
    const std::string what = copy.code == -ESTALE ? "it became shorter while it was copied (ESTALE)" : error_text(copy.code);
    return {copy.code, apps::shown(plan.from) + ": " + what + "; " + reach_of(plan, copy) + "; " + cure};
}

// The runtime knows which bytes it was. If another file was the first to fail, its range would mislead.
status writing_failed(runtime& rt, const planned_copy& plan, const open_copy& copy) {
    const status first = rt.write_status();
    const bool known = !first.ok() && first.code == copy.code && first.message.find(plan.to.substr(plan.to.rfind('/') + 1)) != std::string::npos;
    return {copy.code, apps::shown(plan.to) + ": " + (known ? first.message : error_text(copy.code)) + "; " + reach_of(plan, copy) +
                           "; make room, or give another place"};
}

std::uint64_t hole_bytes_of(const open_copy& copy) {
    std::uint64_t holes = copy.bytes;
    for (const file_range& part : copy.data) holes -= part.bytes;
    return holes;
}

// Files that are open at the same time, copied by one kernel.
class batch {
public:
    batch(runtime& rt, const request& wanted, std::vector<cut>& cuts) : rt_(rt), wanted_(wanted), cuts_(cuts) {}

    // Opens both files and makes the second one if it is not there; an existing one is cut, and loses what it had.
    status add(const planned_copy& plan) {
        open_copy copy;
        handle place, source(::open(plan.from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (source.fd < 0) return apps::about_source(plan.from, -errno, instead);
        copy.from = rt_.open(plan.from);
        file_stat facts{};
        const int code = copy.from < 0 ? copy.from : rt_.stat(copy.from, &facts);
        if (code < 0) return apps::about_source(plan.from, code, instead);
        copy.bytes = facts.size_bytes;
        copy.data = data_of(source.fd, copy.bytes, std::max(least_hole_bytes, rt_.settings().page_bytes));
        if (status failed = open_copy_of(plan, place, copy.to); !failed) {
            rt_.close(copy.from);
            return failed;
        }
        if (wanted_.windows && rt_.where() == backend::gpu) rt_.open_windows(copy.from);  // what has none comes by request
        plans_.push_back(&plan);
        copies_.push_back(std::move(copy));
        places_.push_back(std::move(place));
        sources_.push_back(std::move(source));
        return {};
    }

    // What failed has been said; `sum` counts it.
    status copy(totals& sum) {
        apps::stopwatch watch;
        if (status failed = copy_open_files(rt_, copies_); !failed) return failed;
        std::vector<bool> good;
        for (std::size_t i = 0; i < copies_.size(); ++i) {
            const status failed = conclude(*plans_[i], copies_[i], sources_[i].fd, places_[i]);
            good.push_back(failed.ok());
            if (!failed.ok()) apps::say(failed.message);
        }
        sum.seconds += watch.lap();
        if (wanted_.verify && !was_interrupted()) {
            if (status failed = verify(good); !failed) return failed;
            sum.verify_seconds += watch.lap();
        }
        for (std::size_t i = 0; i < copies_.size(); ++i) {
            rt_.close(copies_[i].from);
            sum.files += good[i] ? 1 : 0;
            sum.bytes += good[i] ? copies_[i].bytes : 0;
            sum.hole_bytes += good[i] ? hole_bytes_of(copies_[i]) : 0;
            sum.failed += good[i] ? 0 : 1;
        }
        if (wanted_.windows && rt_.where() == backend::gpu) rt_.close_windows();
        return {};
    }

private:
    // Nobody else may read a new file before it has its source's permissions.
    status open_copy_of(const planned_copy& plan, handle& place, int& fd) {
        place.fd = ::open(plan.to.c_str(), (plan.is_new ? O_CREAT | O_EXCL : 0) | O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
        if (place.fd < 0) return {-errno, apps::shown(plan.to) + ": " + error_text(-errno) + "; give another name"};
        fd = rt_.open(plan.to, open_write | open_truncate);
        if (fd >= 0) return {};
        return {fd, apps::shown(plan.to) + ": " + error_text(fd) + "; change its permissions, or give another name"};
    }

    // Brings what was copied to the file and gives that its size.
    status conclude(const planned_copy& plan, open_copy& copy, int source, handle& place) {
        struct stat now {};
        if (plan.is_new) ::fchmod(place.fd, plan.mode);
        if (copy.code == 0 && ::fstat(source, &now) == 0 && static_cast<std::uint64_t>(now.st_size) < copy.bytes) {
            copy.reached_bytes = static_cast<std::uint64_t>(now.st_size);  // a window shows what is no longer there
            copy.code = -ESTALE;
            copy.reading = true;
        }
        if (copy.code == -ECANCELED && !was_interrupted()) copy.code = -EIO;
        const std::uint64_t end = copy.data.empty() ? 0 : copy.data.back().offset_bytes + copy.data.back().bytes;
        int code = 0;
        if (copy.code != 0) cuts_.push_back({std::move(place), copy.reached_bytes});
        else if (end < copy.bytes) code = rt_.truncate(copy.to, static_cast<std::int64_t>(copy.bytes));
        if (code == 0 && copy.code == 0 && wanted_.fsync) code = rt_.fsync(copy.to);
        const int closed = rt_.close(copy.to);
        if (copy.code == -ECANCELED) return {copy.code, "interrupted; " + reach_of(plan, copy)};
        if (copy.code != 0) return copy.reading ? reading_failed(plan, copy) : writing_failed(rt_, plan, copy);
        if (code == 0) code = closed;
        if (code == 0 && wanted_.fsync) code = sync_directory_of(plan.to);
        if (code == 0) return {};
        const status why = rt_.write_status();
        return {code, apps::shown(plan.to) + ": " + (why.ok() ? error_text(code) : why.message) + "; not all of its " + bytes_text(copy.bytes) +
                          " can be relied on; make room, or give another place"};
    }

    // A new name is on storage once its directory is.
    static int sync_directory_of(const std::string& path) {
        const std::size_t slash = path.rfind('/');
        const handle directory(::open(slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        return directory.fd >= 0 && ::fsync(directory.fd) == 0 ? 0 : -errno;
    }

    // Opened anew, a copy has no page in the cache: what is compared is what its file has.
    status verify(std::vector<bool>& good) {
        std::vector<open_copy> again;
        std::vector<std::size_t> which;
        const auto failed = [&](std::size_t i, const std::string& what) {
            apps::say(apps::shown(plans_[i]->to) + ": " + what);
            good[i] = false;
        };
        for (std::size_t i = 0; i < copies_.size(); ++i) {
            if (!good[i]) continue;
            open_copy one{copies_[i].from, rt_.open(plans_[i]->to), copies_[i].bytes, {}, 0, 0, false};
            if (one.bytes > 0) one.data.push_back({0, one.bytes});  // holes too
            file_stat facts{};
            if (one.to < 0 || rt_.stat(one.to, &facts) != 0) failed(i, error_text(one.to) + "; the copy cannot be read back");
            else if (facts.size_bytes != one.bytes) failed(i, "has " + bytes_text(facts.size_bytes) + " and not " + apps::with_commas(one.bytes) + "; copy it again when nobody writes to it");
            if (good[i]) which.push_back(i);
            if (good[i]) again.push_back(std::move(one));
            else if (one.to >= 0) rt_.close(one.to);
        }
        if (status kernel = compare_open_files(rt_, again); !kernel) return kernel;
        for (std::size_t i = 0; i < again.size(); ++i) {
            const std::string at = "byte " + apps::with_commas(again[i].reached_bytes);
            if (again[i].code == -EILSEQ) failed(which[i], at + " differs from " + apps::shown(plans_[which[i]]->from) + "; copy it again when nobody writes to either");
            else if (again[i].code != 0) failed(which[i], "reading it back stopped at " + at + ": " + error_text(again[i].code) + "; run again");
            rt_.close(again[i].to);
        }
        return {};
    }

    runtime& rt_;
    const request& wanted_;
    std::vector<const planned_copy*> plans_;
    std::vector<open_copy> copies_;
    std::vector<cut>& cuts_;
    std::vector<handle> places_, sources_;  // where the copies are; what they are of
};

status report(const runtime& rt, const request& wanted, const totals& sum) {
    const double rate = sum.seconds > 0 ? static_cast<double>(sum.bytes - sum.hole_bytes) / sum.seconds : 0;
    if (wanted.common.json)
        return apps::print_json(apps::line_of({{"program", "penstock cp"},
                                               {"version", version()},
                                               {"files", sum.files},
                                               {"bytes", sum.bytes},
                                               {"hole_bytes", sum.hole_bytes},
                                               {"seconds", sum.seconds},
                                               {"bytes_per_second", rate},
                                               {"fsync", wanted.fsync},
                                               {"verified", wanted.verify},
                                               {"verify_seconds", sum.verify_seconds},
                                               {"runtime", apps::json_of(rt)}}));
    if (wanted.common.quiet) return {};
    std::string text = apps::with_commas(sum.files) + (sum.files == 1 ? " file, " : " files, ") + bytes_text(sum.bytes) +
                       (sum.hole_bytes > 0 ? " (" + apps::with_commas(sum.hole_bytes) + " of them holes)" : "") + " copied in " +
                       apps::text_of("%.3f s", sum.seconds) + ", " + apps::text_of("%.2f GB/s", 1e-9 * rate);
    if (wanted.verify) text += "; read back and compared in " + apps::text_of("%.3f s", sum.verify_seconds);
    return apps::print_json(text + "\n");
}

// On CPU threads a cache beyond what is in flight costs the first touch of its memory.
void choose_cache(options& o) {
    constexpr std::uint64_t enough = std::uint64_t{64} << 20;
    if (o.where == backend::cpu && o.cache_bytes == 0) o.cache_bytes = std::max(enough, 64 * o.page_bytes);
}

// What failed has been said and is counted, except what is returned.
status copy_all(runtime& rt, const request& wanted, const std::vector<planned_copy>& plans, std::vector<cut>& cuts, totals& sum) {
    std::uint64_t bytes = 0;
    struct stat facts {};
    for (const planned_copy& plan : plans) bytes += ::stat(plan.from.c_str(), &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
    const apps::progress bar("copying", bytes, [&] { return rt.stats().bytes_written; }, !wanted.common.quiet);
    const std::size_t at_once = std::clamp<std::size_t>(rt.settings().max_files / 4, 1, most_files_at_once);
    for (std::size_t first = 0; first < plans.size() && !was_interrupted(); first += at_once) {
        batch some(rt, wanted, cuts);
        for (std::size_t i = first; i < std::min(plans.size(), first + at_once); ++i)
            if (const status failed = some.add(plans[i]); !failed) {
                apps::say(failed.message);
                ++sum.failed;
            }
        if (status failed = some.copy(sum); !failed) return failed;
    }
    return {};
}

status copy_files(const request& wanted, options settings) {
    if (status failed = apps::watch_signals(); !failed) return failed;
    std::vector<planned_copy> plans;
    if (status failed = plan_copies({wanted.names.begin(), wanted.names.end() - 1}, wanted.names.back(), plans); !failed) return failed;
    choose_cache(settings);
    std::unique_ptr<runtime> rt;
    if (status failed = apps::create_runtime(settings, wanted.common.quiet, rt); !failed) return failed;
    std::vector<cut> cuts;
    totals sum;
    const status ended = copy_all(*rt, wanted, plans, cuts, sum);
    if (!cuts.empty()) rt.reset();
    for (const cut& one : cuts)
        if (::ftruncate(one.file.fd, static_cast<off_t>(one.bytes)) != 0) apps::say(error_text(-errno) + "; a copy that failed has bytes behind its end");
    if (!ended) return ended;
    if (was_interrupted()) return {-ECANCELED, "interrupted; " + apps::with_commas(sum.files) + " of " + apps::with_commas(plans.size()) + " files were copied"};
    return sum.failed == 0 ? report(*rt, wanted, sum) : status{-EIO, ""};  // it has been said
}

}  // namespace

int run(const request& wanted) {
    options settings;
    status failed = apps::settle_options(wanted.common, settings);
    if (failed.ok() && wanted.names.size() < 2) failed = {-EINVAL, "only " + apps::shown(wanted.names.back()) + " was given; name a file and where its copy goes, see penstock cp --help"};
    if (!failed.ok()) {
        apps::say(failed.message);
        return apps::exit_usage;
    }
    settings.roots = {"."};  // names on a command line start at the working directory, whatever kernels may open
    settings.writable = true;
    const status ended = copy_files(wanted, settings);
    if (!ended.ok() && !ended.message.empty()) apps::say(ended.message);
    return ended.ok() ? apps::exit_done : apps::exit_failed;
}

}  // namespace penstock::cp
