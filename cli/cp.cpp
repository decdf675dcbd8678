// penstock cp: files copied by a kernel, or by CPU threads, through the cache.
#include "command.hpp"

#include <algorithm>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
#include "copy_job.hpp"
#include "named_files.hpp"
#include "os/env.hpp"

namespace penstock::cli {

namespace {

using apps::shown;
using apps::unique_fd;
using apps::with_commas;
using cp::file_range;
using cp::open_copy;

constexpr std::uint64_t least_hole_bytes = 64 << 10;  // shorter ones are copied as zeros
constexpr int flags_of_any = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// "1,234 bytes"
std::string bytes_text(std::uint64_t bytes) {
    return with_commas(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::uint64_t data_bytes_of(const open_copy& copy) {
    std::uint64_t out = 0;
    for (const file_range& part : copy.data) out += part.bytes;
    return out;
}

// How far it came, for the end of a message.
std::string reach_of(const planned_copy& plan, const open_copy& copy) {
    return "the first " + with_commas(copy.reached_bytes) + " of " + bytes_text(copy.bytes) +
           " are in " + shown(plan.to);
}

status copying_failed(runtime& rt, const planned_copy& plan, const open_copy& copy) {
    std::string place = plan.to, reason = error_text(copy.code),
                cure = apps::cure_for(copy.code, "make room, or give another place");
    const status first = rt.write_status();
    if (copy.reading) {
        place = plan.from;
        cure = cure_of_reading(copy.code, "cp");
        if (copy.code == -ESTALE) {
            reason = "it became shorter while it was copied (ESTALE)";
            cure = "run again when no program writes to it";
        }
    } else if (first.code == copy.code &&
               first.message.find(plan.to.substr(plan.to.rfind('/') + 1)) != std::string::npos) {
        // The runtime knows which bytes it was. If another file was the first to fail, its range
        // would mislead.
        reason = first.message;
    }
    return {copy.code, shown(place) + ": " + reason + "; " + reach_of(plan, copy) + "; " + cure};
}

// A new name is on storage once its directory is.
int sync_directory_of(const std::string& path) {
    const unique_fd directory(
        ::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory >= 0 ? host::sync_file(host::linux_environment(), directory) : -errno;
}

// The soft limit on open files.
rlim_t most_descriptors() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// Where a copy ends that could not be finished: what groups wrote behind that is of no use. Cut
// when the runtime has ended, for until then it may still write back pages that lie behind. Opened
// only then, because there may be many.
struct cut {
    std::string path;
    std::uint64_t device = 0, inode = 0;  // another file that has the name meanwhile stays as it is
    std::uint64_t bytes = 0;

    // 0 or a negative errno.
    [[nodiscard]] int make() const {
        const unique_fd file(::open(path.c_str(), O_WRONLY | flags_of_any));
        struct stat now {};
        if (file < 0 || ::fstat(file, &now) != 0) return errno == ENOENT ? 0 : -errno;
        if (now.st_dev != device || now.st_ino != inode) return 0;
        return ::ftruncate(file, static_cast<off_t>(bytes)) == 0 ? 0 : -errno;
    }
};

// Files that are open at the same time and copied by one kernel.
struct batch {
    std::vector<open_copy> copies;
    // Of each copy:
    std::vector<const planned_copy*> plans;
    std::vector<unique_fd> sources, places;  // the files themselves, on the host
};

const command_text cp_text = {
    "cp", "Copies files through the page cache, by a kernel on the GPU or by CPU threads.\n",
    "\nOne file to another name, or files into a directory that exists. A copy that is there is "
    "overwritten and keeps its\npermissions; a new one gets its source's, less the umask. Links "
    "are followed, and holes stay holes. All names are looked at\nbefore the first byte is "
    "written; one that is wrong ends the program with nothing changed. If a file cannot be copied\n"
    "to its end, it is said how far it came, the copy ends there, and the other files are still "
    "copied.\nWithout --fsync the copy is what other programs read, but may be lost if the machine "
    "fails.\n",
    true};

class cp_command : public command {
public:
    cp_command() : command(cp_text) {}

    void add_options(apps::option_list& add) override {
        add.operands("FILES", names_,
                     "Files to copy, and last the name of the copy or a directory to copy into");
        add.flag("--fsync", fsync_, "End only when the copies and their names are on storage");
        add.flag("--verify", verify_, "Read every copy back and compare it with its source");
        add.flag("!--no-windows", windows_,
                 "Read every page by a request to the host, even what the OS page cache has. GPU "
                 "only; for measuring");
    }

    status check() override {
        if (names_.size() < 2)
            return {-EINVAL,
                    "only " + shown(names_.back()) +
                        " was given; name a file and where its copy goes, see penstock cp --help"};
        settings.roots = {"."};  // names on a command line start at the working directory
        settings.writable = true;
        // On CPU threads a cache beyond what is in flight costs the first touch of its memory.
        constexpr std::uint64_t enough = std::uint64_t{64} << 20;
        if (settings.where == backend::cpu && !settings.cache_bytes)
            settings.cache_bytes = std::max(enough, 64 * settings.page_bytes);
        return {};
    }

    status run() override {
        // A runtime and one file take so many; with fewer, copies would be begun that cannot be
        // ended.
        constexpr rlim_t least_descriptors = 32;
        if (const rlim_t most = most_descriptors(); most < least_descriptors)
            return {-EMFILE, "the limit on open files is " + std::to_string(most) +
                                 ", and copying takes " + std::to_string(least_descriptors) +
                                 "; raise it (ulimit -n)"};
        if (status s = apps::watch_signals(); !s) return s;
        const std::string destination = names_.back();
        names_.pop_back();
        std::vector<planned_copy> plans;
        if (status s = plan_copies(names_, destination, cp::most_bytes, plans); !s) return s;
        if (status s = apps::create_runtime(settings, common.quiet, rt_); !s) return s;
        const status ended = copy_all(plans);
        if (!cuts_.empty()) rt_.reset();
        for (const cut& pending : cuts_)
            if (const int code = pending.make(); code != 0)
                apps::say(shown(pending.path) + ": " + error_text(code) +
                          "; this copy failed, and has bytes behind its end");
        if (!ended) return ended;
        if (was_interrupted())
            return {-ECANCELED, "interrupted; " + with_commas(files_) + " of " +
                                    with_commas(plans.size()) + " files were copied"};
        return failed_ == 0 ? report_work() : status{-EIO, ""};  // it has been said
    }

private:
    // Each file of a batch has two descriptors here, and its copy one for writing in the runtime.
    // Of others the runtime keeps half of the process's limit at most, and opens the rest anew by
    // itself.
    [[nodiscard]] std::size_t files_at_once() const {
        constexpr rlim_t others = 40;
        constexpr std::size_t most_at_once = 128;
        const std::size_t most =
            std::clamp<std::size_t>(rt_->settings().max_files / 4, 1, most_at_once);
        const rlim_t limit = most_descriptors(), ours = limit / 2;
        if (limit == RLIM_INFINITY) return most;
        return std::clamp<std::size_t>((ours > others ? ours - others : 0) / 3, 1, most);
    }

    // What failed has been said and is counted, except what is returned.
    status copy_all(const std::vector<planned_copy>& plans) {
        std::uint64_t bytes = 0;
        struct stat facts {};
        for (const planned_copy& plan : plans)
            if (::stat(plan.from.c_str(), &facts) == 0)
                bytes += static_cast<std::uint64_t>(facts.st_size);
        const apps::progress bar(
            "copying", bytes, [this] { return rt_->stats().bytes_written; }, !common.quiet);
        const std::size_t at_once = files_at_once();
        for (std::size_t first = 0; first < plans.size() && !was_interrupted(); first += at_once) {
            apps::stopwatch watch;  // opening files and their windows counts
            batch next;
            for (std::size_t i = first; i < std::min(plans.size(), first + at_once); ++i)
                if (const status s = add(plans[i], next); !s) {
                    apps::say(s.message);
                    ++failed_;
                }
            if (status s = copy(next, watch); !s) return s;
        }
        return {};
    }

    // Opens both files and makes the second one if it is not there; an existing one is cut, and
    // loses what it had.
    status add(const planned_copy& plan, batch& to) {
        open_copy copy;
        unique_fd place, source(::open(plan.from.c_str(), O_RDONLY | flags_of_any));
        if (source < 0) return about_source(plan.from, -errno, "cp");
        copy.from = rt_->open(plan.from);
        file_stat facts{};
        const int code = copy.from < 0 ? copy.from : rt_->stat(copy.from, &facts);
        if (code < 0) return about_source(plan.from, code, "cp");
        copy.bytes = facts.size_bytes;
        copy.data =
            cp::data_of(source, copy.bytes, std::max(least_hole_bytes, rt_->settings().page_bytes));
        if (status s = open_copy_of(plan, copy.bytes, place, copy.to); !s) {
            if (plan.is_new && place >= 0) ::unlink(plan.to.c_str());
            rt_->close(copy.from);
            return s;
        }
        if (windows_ && rt_->where() == backend::gpu)
            rt_->open_windows(copy.from);  // what has none comes by request
        to.copies.push_back(std::move(copy));
        to.plans.push_back(&plan);
        to.sources.push_back(std::move(source));
        to.places.push_back(std::move(place));
        return {};
    }

    // No other user may read a new file before it has its source's permissions. A copy that is to
    // become longer than files may grow gets its length before the runtime opens it.
    status open_copy_of(const planned_copy& plan, std::uint64_t bytes, unique_fd& place, int& fd) {
        const auto failed = [&plan](int code, const char* cure) {
            return status{
                code, shown(plan.to) + ": " + error_text(code) + "; " + apps::cure_for(code, cure)};
        };
        place = unique_fd(::open(
            plan.to.c_str(), (plan.is_new ? O_CREAT | O_EXCL : 0) | O_WRONLY | flags_of_any, 0600));
        if (place < 0) return failed(-errno, "give another name");
        const bool is_long = bytes > growth_bytes();
        if (is_long &&
            (::ftruncate(place, 0) != 0 || ::ftruncate(place, static_cast<off_t>(bytes)) != 0))
            return failed(-errno,
                          "its file system takes no file of this length; give another place");
        fd = rt_->open(plan.to, is_long ? open_write : open_write | open_truncate);
        return fd >= 0 ? status{} : failed(fd, "change its permissions, or give another name");
    }

    // How far a file may grow while the runtime has it open (docs/guide/settings.md), or less.
    [[nodiscard]] std::uint64_t growth_bytes() const {
        constexpr std::uint64_t most = std::uint64_t{1} << 39, most_leaf_pages = 1u << 15;
        const std::uint64_t words = rt_->settings().table_bytes / 8;
        return std::min(most, words / 256 * std::min(most_leaf_pages, words / 128) *
                                  rt_->settings().page_bytes);
    }

    // Copies them, and compares them if that is wanted. Files that failed have been said and are
    // counted; the status is that of the kernel.
    status copy(batch& files, apps::stopwatch& watch) {
        if (status s = cp::copy_open_files(*rt_, files.copies); !s) return s;
        std::vector<bool> good;
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            const status ended =
                conclude(*files.plans[i], files.copies[i], files.sources[i], files.places[i]);
            good.push_back(ended.ok());
            apps::say(ended.message);
        }
        seconds_ += watch.lap();
        if (verify_ && !was_interrupted()) {
            if (status s = verify(files, good); !s) return s;
            verify_seconds_ += watch.lap();
        }
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            const open_copy& done = files.copies[i];
            rt_->close(done.from);
            ++(good[i] ? files_ : failed_);
            bytes_ += good[i] ? done.bytes : 0;
            hole_bytes_ += good[i] ? done.bytes - data_bytes_of(done) : 0;
        }
        if (windows_ && rt_->where() == backend::gpu) rt_->close_windows();
        return {};
    }

    // Brings what was copied to the file and gives that its size.
    status conclude(const planned_copy& plan, open_copy& copy, int source, int place) {
        struct stat now {};
        if (plan.is_new) ::fchmod(place, plan.mode);
        if (copy.code == 0 && ::fstat(source, &now) == 0 &&
            static_cast<std::uint64_t>(now.st_size) < copy.bytes) {
            // A window shows what is no longer there.
            copy.reached_bytes = static_cast<std::uint64_t>(now.st_size);
            copy.code = -ESTALE;
            copy.reading = true;
        }
        if (copy.code == -ECANCELED && !was_interrupted()) copy.code = -EIO;
        const std::uint64_t end =
            copy.data.empty() ? 0 : copy.data.back().offset_bytes + copy.data.back().bytes;
        int code = 0;
        if (copy.code != 0 && ::fstat(place, &now) == 0)
            cuts_.push_back({plan.to, now.st_dev, now.st_ino, copy.reached_bytes});
        else if (end < copy.bytes)
            code = rt_->truncate(copy.to, static_cast<std::int64_t>(copy.bytes));
        if (code == 0 && copy.code == 0 && fsync_) code = rt_->fsync(copy.to);
        const int closed = rt_->close(copy.to);
        if (copy.code == -ECANCELED) return {copy.code, "interrupted; " + reach_of(plan, copy)};
        if (copy.code != 0) return copying_failed(*rt_, plan, copy);
        if (code == 0) code = closed;
        if (code == 0 && fsync_) code = sync_directory_of(plan.to);
        if (code == 0) return {};
        const status why = rt_->write_status();
        return {code, shown(plan.to) + ": " + (why.ok() ? error_text(code) : why.message) +
                          "; not all of its " + bytes_text(copy.bytes) + " can be relied on; " +
                          apps::cure_for(code, "make room, or give another place")};
    }

    // Opened anew, a copy has no page in the cache: what is compared is what its file has.
    status verify(const batch& files, std::vector<bool>& good) {
        std::vector<open_copy> again;
        std::vector<std::size_t> numbers;  // in the batch
        const auto failed = [&](std::size_t i, const std::string& message) {
            apps::say(shown(files.plans[i]->to) + ": " + message);
            good[i] = false;
        };
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            if (!good[i]) continue;
            open_copy reopened{.from = files.copies[i].from,
                               .to = rt_->open(files.plans[i]->to),
                               .bytes = files.copies[i].bytes,
                               .data = {}};
            if (reopened.bytes > 0) reopened.data.push_back({0, reopened.bytes});  // holes too
            file_stat facts{};
            if (reopened.to < 0 || rt_->stat(reopened.to, &facts) != 0)
                failed(i, error_text(reopened.to) + "; the copy cannot be read back");
            else if (facts.size_bytes != reopened.bytes)
                failed(i, "has " + bytes_text(facts.size_bytes) + " and not " +
                              with_commas(reopened.bytes) +
                              "; copy it again when no program writes to it");
            if (good[i]) numbers.push_back(i);
            if (good[i]) again.push_back(std::move(reopened));
            else if (reopened.to >= 0) rt_->close(reopened.to);
        }
        if (status s = cp::compare_open_files(*rt_, again); !s) return s;
        for (std::size_t i = 0; i < again.size(); ++i) {
            const std::string at = "byte " + with_commas(again[i].reached_bytes);
            if (again[i].code == -EILSEQ)
                failed(numbers[i], at + " differs from " + shown(files.plans[numbers[i]]->from) +
                                       "; copy it again when no program writes to either");
            else if (again[i].code != 0)
                failed(numbers[i], "reading it back stopped at " + at + ": " +
                                       error_text(again[i].code) + "; run again");
            rt_->close(again[i].to);
        }
        return {};
    }

    status report_work() const {
        const double rate = seconds_ > 0 ? static_cast<double>(bytes_ - hole_bytes_) / seconds_ : 0;
        std::string text =
            with_commas(files_) + (files_ == 1 ? " file, " : " files, ") + bytes_text(bytes_) +
            (hole_bytes_ > 0 ? " (" + with_commas(hole_bytes_) + " of them holes)" : "") +
            " copied in " + apps::text_of("%.3f s", seconds_) + ", " +
            apps::text_of("%.2f GB/s", 1e-9 * rate);
        if (verify_)
            text += "; read back and compared in " + apps::text_of("%.3f s", verify_seconds_);
        return report({{"files", files_},
                       {"bytes", bytes_},
                       {"hole_bytes", hole_bytes_},
                       {"seconds", seconds_},
                       {"bytes_per_second", rate},
                       {"fsync", fsync_},
                       {"verified", verify_},
                       {"verify_seconds", verify_seconds_},
                       {"runtime", apps::json_of(*rt_)}},
                      text + "\n");
    }

    std::vector<std::string> names_;  // of the files, and last where they go
    bool fsync_ = false, verify_ = false, windows_ = true;
    std::unique_ptr<runtime> rt_;
    std::vector<cut> cuts_;
    // All batches together.
    std::uint64_t files_ = 0, bytes_ = 0, hole_bytes_ = 0, failed_ = 0;
    double seconds_ = 0, verify_seconds_ = 0;
};

}  // namespace

std::unique_ptr<command> make_cp() { return std::make_unique<cp_command>(); }

}  // namespace penstock::cli
