// Copies files by a kernel, or by CPU threads of the cpu back end, through the page cache.
#include <algorithm>
#include <fcntl.h>
#include <filesystem>
#include <mutex>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "command.hpp"
#include "copier.hpp"
#include "os/file_system.hpp"
#include "os/patient_open.hpp"

namespace penstock::cli {

namespace {

using apps::shown;
using apps::unique_fd;
using cp::open_copy;

// The soft limit on open files.
rlim_t most_descriptors() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// Descriptors that the process has.
rlim_t open_descriptors() {
    std::error_code failed;
    std::filesystem::directory_iterator each("/proc/thread-self/fd", failed);
    rlim_t count = 0;
    for (; !failed && each != std::filesystem::directory_iterator(); each.increment(failed))
        ++count;
    return failed == std::errc::too_many_files_open ? most_descriptors() : count;
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
        const unique_fd file(host::open_past_leases(path, O_WRONLY | flags_of_any));
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

class kernel_copier final : public copier {
public:
    explicit kernel_copier(const copy_wishes& wanted) : wanted_(wanted) {}

    status begin(const options& settings, bool quiet) {
        // A runtime and one file take so many; with fewer, copies would be begun that cannot be
        // ended.
        constexpr rlim_t least_descriptors = 32;
        if (const rlim_t most = most_descriptors(); most < least_descriptors)
            return {-EMFILE, "the limit on open files is " + std::to_string(most) +
                                 ", and copying takes " + std::to_string(least_descriptors) +
                                 "; raise it (ulimit -n)"};
        options with_log = settings;
        with_log.log = [this](const std::string& line) { say_unless_of_copy(line); };
        if (status s = apps::create_runtime(std::move(with_log), quiet, rt_); !s) return s;
        // A GPU's driver has some forty. The runtime keeps up to a third of the limit of files that
        // were copied.
        others_ = open_descriptors();
        const rlim_t most = most_descriptors(), wanted = most / 3 + 10;
        if (most == RLIM_INFINITY || others_ + wanted <= most) return {};
        return {-EMFILE, "the limit on open files is " + std::to_string(most) + ", " +
                             std::to_string(others_) + " are open, and copying takes " +
                             std::to_string(wanted) + " more; raise it (ulimit -n)"};
    }

    // No more bytes than are soon copied, unless it is one file: all copies of a batch are cut
    // before the first byte is copied, and an interrupt leaves them so.
    [[nodiscard]] std::size_t files_at_once(std::span<const planned_copy> plans) const override {
        constexpr std::uint64_t enough_bytes = std::uint64_t{64} << 20;
        const std::size_t most = std::min(plans.size(), most_at_once());
        std::size_t count = 1;
        std::uint64_t bytes = plans.front().bytes;
        for (; count < most && bytes < enough_bytes; ++count) bytes += plans[count].bytes;
        return count > 1 && bytes > enough_bytes ? count - 1 : count;
    }

    // Each file of a batch has two descriptors here, and its copy one for writing in the runtime.
    // Of others the runtime keeps half of the process's limit at most, and opens the rest anew by
    // itself.
    [[nodiscard]] std::size_t most_at_once() const {
        const rlim_t others = std::max<rlim_t>(40, others_);
        constexpr std::size_t most_useful = 128;
        const std::size_t most =
            std::clamp<std::size_t>(rt_->settings().max_files / 4, 1, most_useful);
        const rlim_t limit = most_descriptors(), ours = limit / 2;
        if (limit == RLIM_INFINITY) return most;
        return std::clamp<std::size_t>((ours > others ? ours - others : 0) / 3, 1, most);
    }

    [[nodiscard]] std::uint64_t bytes_written() const override {
        return rt_->stats().bytes_written;
    }

    status copy(std::span<const planned_copy> plans, copy_totals& totals) override {
        apps::stopwatch watch;  // opening files and their windows counts
        batch files;
        for (const planned_copy& plan : plans) {
            if (was_interrupted()) break;
            if (const status s = add(plan, files); !s) {
                apps::say(s.message);
                ++totals.failed;
            }
        }
        if (status s = cp::copy_open_files(*rt_, files.copies); !s) return s;
        std::vector<bool> good;
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            const status ended = conclude(*files.plans[i], files.copies[i], files.sources[i],
                                          std::move(files.places[i]));
            good.push_back(ended.ok());
            apps::say(ended.message);
        }
        totals.seconds += watch.lap();
        if (wanted_.verify && !was_interrupted()) {
            if (status s = verify(files, good); !s) return s;
            totals.verify_seconds += watch.lap();
        }
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            rt_->close(files.copies[i].from);
            count(files.copies[i], good[i], totals);
        }
        if (wanted_.windows && rt_->where() == backend::gpu) rt_->close_windows();
        return {};
    }

    void finish() override {
        if (cuts_.empty()) return;
        rt_.reset();
        for (const cut& pending : cuts_)
            if (const int code = pending.make(); code != 0)
                apps::say(shown(pending.path) + ": " + error_text(code) +
                          "; this copy failed, and has bytes behind its end");
    }

    [[nodiscard]] nlohmann::json facts() const override {
        return {{"by", "kernel"}, {"runtime", apps::json_of(*rt_)}};
    }

private:
    // What the runtime says of a file that it cannot write is for programs that go on, and can call
    // fsync again. Here the copy ends, and its own message says how and what to do.
    void say_unless_of_copy(const std::string& line) {
        {
            const std::lock_guard lock(paths_mutex_);
            for (const std::string& path : paths_)
                if (line.starts_with(path + ": ")) return;
        }
        apps::say(line);
    }

    void note_path(int place) {
        std::error_code unknown;
        const std::string path =
            std::filesystem::read_symlink(host::path_of_descriptor(place), unknown);
        const std::lock_guard lock(paths_mutex_);
        if (!unknown) paths_.push_back(path);
    }

    // Opens both files and makes the second one if it is not there; an existing one is cut, and
    // loses what it had.
    status add(const planned_copy& plan, batch& to) {
        open_copy copy;
        unique_fd place, source(host::open_past_leases(plan.from, O_RDONLY | flags_of_any));
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
        if (wanted_.windows && rt_->where() == backend::gpu)
            rt_->open_windows(copy.from);  // what has none comes by request
        to.copies.push_back(std::move(copy));
        to.plans.push_back(&plan);
        to.sources.push_back(std::move(source));
        to.places.push_back(std::move(place));
        return {};
    }

    // A copy that is to become longer than files may grow gets its length before the runtime opens
    // it.
    status open_copy_of(const planned_copy& plan, std::uint64_t bytes, unique_fd& place, int& fd) {
        if (status s = open_place(plan, place); !s) return s;
        note_path(place);
        const bool is_long = bytes > growth_bytes();
        const auto length = static_cast<off_t>(bytes);
        // Lengthened first: where it may not be so long, what is there stays.
        if (is_long && (::ftruncate(place, length) != 0 || ::ftruncate(place, 0) != 0 ||
                        ::ftruncate(place, length) != 0))
            return place_failed(plan, -errno,
                                "its file system takes no file of this length; give another place");
        fd = rt_->open(plan.to, is_long ? open_write : open_write | open_truncate);
        return fd >= 0 ? status{}
                       : place_failed(plan, fd, "change its permissions, or give another name");
    }

    // How far a file may grow while the runtime has it open (docs/guide/settings.md), or less.
    [[nodiscard]] std::uint64_t growth_bytes() const {
        constexpr std::uint64_t most = std::uint64_t{1} << 39, most_leaf_pages = 1u << 15;
        const std::uint64_t words = rt_->settings().table_bytes / 8;
        return std::min(most, words / 256 * std::min(most_leaf_pages, words / 128) *
                                  rt_->settings().page_bytes);
    }

    // Brings what was copied to the file, gives that its size and closes it: file systems of
    // networks may say only then that there was no room.
    status conclude(const planned_copy& plan, open_copy& copy, int source, unique_fd place) {
        struct stat now {};
        set_mode(plan, place);
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
        if (code == 0 && copy.code == 0 && wanted_.fsync) code = rt_->fsync(copy.to);
        const int closed = rt_->close(copy.to);
        // A group waited for a frame in vain while others tried to write theirs: the close says
        // what keeps those from the file.
        if (copy.code == -ENOBUFS && !copy.reading && closed != 0) copy.code = closed;
        if (copy.code != 0) return copying_failed(plan, copy, reason_of(plan, copy.code));
        if (code == 0) code = closed;
        const int place_closed = ::close(place.release()) == 0 ? 0 : -errno;
        if (code == 0) code = place_closed;
        if (code == 0 && wanted_.fsync) code = sync_directory_of(plan.to);
        if (code == 0) return {};
        return ending_failed(plan, copy, code, rt_->write_status().message);
    }

    // Opened anew, a copy has no page in the cache: what is compared is what its file has.
    status verify(const batch& files, std::vector<bool>& good) {
        std::vector<open_copy> again;
        std::vector<std::size_t> numbers;  // in the batch
        const auto judge = [&](std::size_t i, const status& outcome) {
            apps::say(outcome.message);
            good[i] = outcome.ok();
        };
        for (std::size_t i = 0; i < files.copies.size(); ++i) {
            if (!good[i]) continue;
            const planned_copy& plan = *files.plans[i];
            open_copy reopened{.from = files.copies[i].from,
                               .to = rt_->open(plan.to),
                               .bytes = files.copies[i].bytes,
                               .data = {}};
            if (reopened.bytes > 0) reopened.data.push_back({0, reopened.bytes});  // holes too
            file_stat facts{};
            if (const int code = reopened.to < 0 ? reopened.to : rt_->stat(reopened.to, &facts);
                code != 0)
                judge(i, {-EIO, shown(plan.to) + ": " + error_text(code) +
                                    "; the copy cannot be read back"});
            else if (facts.size_bytes != reopened.bytes)
                judge(i, length_differs(plan, facts.size_bytes, reopened.bytes));
            if (good[i]) numbers.push_back(i);
            if (good[i]) again.push_back(std::move(reopened));
            else if (reopened.to >= 0) rt_->close(reopened.to);
        }
        if (status s = cp::compare_open_files(*rt_, again); !s) return s;
        for (std::size_t i = 0; i < again.size(); ++i) {
            if (again[i].code != 0)
                judge(numbers[i], comparing_failed(*files.plans[numbers[i]], again[i]));
            rt_->close(again[i].to);
        }
        return {};
    }

    // The runtime knows which bytes it was. If another file was the first to fail, its range would
    // mislead.
    [[nodiscard]] std::string reason_of(const planned_copy& plan, int code) const {
        const status first = rt_->write_status();
        const std::string name = plan.to.substr(plan.to.rfind('/') + 1);
        return first.code == code && first.message.find(name) != std::string::npos ? first.message
                                                                                   : "";
    }

    const copy_wishes wanted_;
    rlim_t others_ = 0;  // descriptors that are open before the first batch
    std::mutex paths_mutex_;
    std::vector<std::string> paths_;  // of the copies, as the runtime calls them; guarded
    std::unique_ptr<runtime> rt_;     // says what it could not write when it ends
    std::vector<cut> cuts_;
};

}  // namespace

status make_kernel_copier(const options& settings, const copy_wishes& wanted, bool quiet,
                          std::unique_ptr<copier>& out) {
    auto made = std::make_unique<kernel_copier>(wanted);
    if (status s = made->begin(settings, quiet); !s) return s;
    out = std::move(made);
    return {};
}

}  // namespace penstock::cli
