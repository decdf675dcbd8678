// Copies files by the operating system, and passes no byte through a runtime: the file system
// shares the blocks where it can (FICLONE), else the operating system copies ranges
// (copy_file_range), and where it refuses that they go through a buffer.
//
// Several threads take a file each. A file has one: two that write it wait for each other in the
// file system, and a file of 4 GiB took 1.1 to 1.7 s by one thread, 1.3 to 1.8 by two to eight
// (bench/results/cpu/2026-11-26-cp-threads.txt).
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "command.hpp"
#include "common/threads.hpp"
#include "copier.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"
#include "os/patient_open.hpp"

namespace penstock::cli {

namespace {

using apps::unique_fd;
using apps::with_commas;
using cp::file_range;
using cp::open_copy;

constexpr std::uint64_t step_bytes = 8 << 20;  // between two looks for an interrupt
constexpr std::uint64_t buffer_bytes = 1 << 20;
constexpr unsigned most_threads = 4;

struct host_copy {
    const planned_copy* plan;
    open_copy copy;
    unique_fd source, place;
    bool is_shared = false;
    status begun = {-ECANCELED, ""};  // no thread came to it, or why its place could not be opened
};

// 0 or -errno. Not where it has that length already: after a call that cuts a file to nothing, ext4
// brings the file to storage when it is closed, and the copy of 4 GiB took twice as long.
int set_length(int fd, std::uint64_t bytes) {
    struct stat now {};
    if (::fstat(fd, &now) == 0 && static_cast<std::uint64_t>(now.st_size) == bytes) return 0;
    return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : -errno;
}

bool is_no_room(int code) { return code == ENOSPC || code == EFBIG || code == EDQUOT; }

// Of this thread.
std::vector<std::byte>& buffer(unsigned number) {
    thread_local std::vector<std::byte> buffers[2];
    buffers[number].resize(buffer_bytes);
    return buffers[number];
}

// Bytes, fewer only at the end of the file, or a negative errno.
std::int64_t read_some(int fd, std::vector<std::byte>& to, std::uint64_t bytes, std::uint64_t at) {
    return host::read_all(host::linux_environment(), fd, to.data(),
                          std::min<std::uint64_t>(bytes, to.size()), at);
}

// What follows goes on at `reached_bytes` of the copy, and leaves there how far it came, and why it
// stopped. False: it has failed, or was interrupted. An interrupt is looked for after a step and
// not before the first one, so that a short file that was begun is copied: its old copy has been
// cut.

bool stopped(open_copy& copy, int code, bool reading) {
    copy.code = code;
    copy.reading = reading;
    return false;
}

bool copy_by_buffer(host_copy& of, std::uint64_t bytes) {
    std::vector<std::byte>& room = buffer(0);
    const std::int64_t got = read_some(of.source, room, bytes, of.copy.reached_bytes);
    if (got <= 0) return stopped(of.copy, got < 0 ? static_cast<int>(got) : -ESTALE, true);
    for (std::int64_t put = 0; put < got;) {
        const ssize_t written =
            ::pwrite(of.place, room.data() + put, static_cast<std::size_t>(got - put),
                     static_cast<off_t>(of.copy.reached_bytes));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return stopped(of.copy, written < 0 ? -errno : -EIO, false);
        put += written;
        of.copy.reached_bytes += static_cast<std::uint64_t>(written);
    }
    return true;
}

bool copy_up_to(host_copy& of, std::uint64_t end, std::atomic<std::uint64_t>& written) {
    open_copy& copy = of.copy;
    for (bool by_system = true; copy.reached_bytes < end;) {
        const std::uint64_t before = copy.reached_bytes, bytes = std::min(end - before, step_bytes);
        if (by_system) {
            auto from = static_cast<off_t>(before), to = from;
            const ssize_t copied = ::copy_file_range(of.source, &from, of.place, &to, bytes, 0);
            if (copied < 0 && errno == EINTR) continue;
            if (copied < 0 && is_no_room(errno)) return stopped(copy, -errno, false);
            if (copied > 0) copy.reached_bytes += static_cast<std::uint64_t>(copied);
            else by_system = false;  // a buffer tells whether reading or writing fails
        } else if (!copy_by_buffer(of, bytes)) {
            return false;
        }
        written.fetch_add(copy.reached_bytes - before, std::memory_order_relaxed);
        if (copy.reached_bytes > before && copy.reached_bytes < copy.bytes && was_interrupted())
            return stopped(copy, -ECANCELED, false);
    }
    return true;
}

// All that is no hole.
void copy_data(host_copy& of, std::atomic<std::uint64_t>& written) {
    for (const file_range& part : of.copy.data) {
        of.copy.reached_bytes = part.offset_bytes;
        if (!copy_up_to(of, part.offset_bytes + part.bytes, written)) return;
    }
    of.copy.reached_bytes = of.copy.bytes;
    of.copy.code = 0;
}

// All bytes, those of holes too. `place` is open for reading.
void compare_all(host_copy& of) {
    open_copy& copy = of.copy;
    copy.code = 0;
    for (copy.reached_bytes = 0; copy.reached_bytes < copy.bytes && copy.code == 0;) {
        std::vector<std::byte>&ours = buffer(0), &theirs = buffer(1);
        const std::uint64_t left = copy.bytes - copy.reached_bytes;
        const std::int64_t a = read_some(of.source, ours, left, copy.reached_bytes),
                           b = read_some(of.place, theirs, left, copy.reached_bytes);
        const std::int64_t both = std::min(a, b);
        copy.reading = a <= 0;  // else the copy, if one of them
        const std::int64_t of_it = copy.reading ? a : b;
        if (both <= 0) copy.code = of_it < 0 ? static_cast<int>(of_it) : -ESTALE;
        if (was_interrupted()) copy.code = -ECANCELED;
        if (copy.code != 0) return;
        const auto same =
            std::mismatch(ours.begin(), ours.begin() + both, theirs.begin()).first - ours.begin();
        copy.reached_bytes += static_cast<std::uint64_t>(same);
        if (same < both) copy.code = -EILSEQ;
    }
}

class host_copier final : public copier {
public:
    explicit host_copier(const copy_wishes& wanted) : wanted_(wanted) {}

    [[nodiscard]] std::size_t files_at_once(std::span<const planned_copy> plans) const override {
        constexpr rlim_t others = 24;
        const rlim_t most = std::min<rlim_t>(128, plans.size());
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return most;
        return std::clamp<rlim_t>((limit.rlim_cur > others ? limit.rlim_cur - others : 0) / 2, 1,
                                  most);
    }
    [[nodiscard]] std::uint64_t bytes_written() const override { return written_; }

    status copy(std::span<const planned_copy> plans, copy_totals& totals) override {
        apps::stopwatch watch;
        std::vector<host_copy> files;
        for (const planned_copy& plan : plans)
            if (const status s = add(plan, files); !s) {
                apps::say(s.message);
                ++totals.failed;
            }
        on_files(files, [&](host_copy& file) {
            file.begun = begin(file);
            if (file.begun.ok() && !file.is_shared) copy_data(file, written_);
        });
        std::vector<bool> good;
        for (host_copy& file : files) {
            const status ended = conclude(file);
            good.push_back(ended.ok());
            apps::say(ended.message);
        }
        totals.seconds += watch.lap();
        if (wanted_.verify && !was_interrupted()) {
            verify(files, good);
            totals.verify_seconds += watch.lap();
        }
        for (std::size_t i = 0; i < files.size(); ++i) {
            count(files[i].copy, good[i], totals);
            if (good[i] && files[i].is_shared) totals.shared_bytes += files[i].copy.bytes;
        }
        return {};
    }

    [[nodiscard]] nlohmann::json facts() const override { return {{"by", "host"}}; }

private:
    static status add(const planned_copy& plan, std::vector<host_copy>& to) {
        host_copy file{
            &plan, {}, unique_fd(host::open_past_leases(plan.from, O_RDONLY | flags_of_any)), {}};
        struct stat facts {};
        if (file.source < 0 || ::fstat(file.source, &facts) != 0)
            return about_source(plan.from, -errno, "cp");
        file.copy.bytes = static_cast<std::uint64_t>(facts.st_size);
        file.copy.data = cp::data_of(file.source, file.copy.bytes, least_hole_bytes);
        to.push_back(std::move(file));
        return {};
    }

    // Opens the copy's file and makes it if it is not there; an existing one is cut, and loses what
    // it had. So this comes right before the first byte: an interrupt leaves what was not begun.
    static status begin(host_copy& file) {
        if (status s = open_place(*file.plan, file.place); !s) return s;
        if (const int code = set_length(file.place, 0); code != 0)
            return place_failed(*file.plan, code, "give another name");
        file.is_shared = file.copy.bytes > 0 && ::ioctl(file.place, FICLONE, int{file.source}) == 0;
        if (file.is_shared) file.copy.reached_bytes = file.copy.bytes;
        return {};
    }

    // An interrupt leaves out the rest.
    template <typename Work>
    static void on_files(std::vector<host_copy>& files, const Work& work) {
        std::atomic<std::size_t> next{0};
        const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
        const auto threads =
            static_cast<std::uint32_t>(std::min({files.size(), cores, std::size_t{most_threads}}));
        if (threads == 0) return;
        apps::on_threads(threads, [&](std::uint32_t) {
            // Relaxed: what a file became comes to the caller with the end of the threads.
            for (std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
                 i < files.size() && !was_interrupted();
                 i = next.fetch_add(1, std::memory_order_relaxed))
                work(files[i]);
        });
    }

    // Gives the copy its end and permissions, and brings it to storage if that is wanted.
    [[nodiscard]] status conclude(host_copy& file) const {
        open_copy& copy = file.copy;
        const planned_copy& plan = *file.plan;
        if (!file.begun.ok()) return file.begun;
        struct stat now {};
        set_mode(plan, file.place);
        // Of shared blocks the copy has what there was at that moment.
        if (copy.code == 0 && ::fstat(file.is_shared ? file.place : file.source, &now) == 0 &&
            static_cast<std::uint64_t>(now.st_size) < copy.bytes) {
            copy.reached_bytes = static_cast<std::uint64_t>(now.st_size);
            copy.code = -ESTALE;
            copy.reading = true;
        }
        int code = set_length(file.place, copy.reached_bytes);
        if (copy.code != 0) return copying_failed(plan, copy, reason_of(copy));
        if (code == 0 && wanted_.fsync)
            code = host::sync_file(host::linux_environment(), file.place);
        const int closed = ::close(file.place.release()) == 0 ? 0 : -errno;
        if (code == 0) code = closed;
        if (code == 0 && wanted_.fsync) code = sync_directory_of(plan.to);
        return code == 0 ? status{} : ending_failed(plan, copy, code);
    }

    static std::string reason_of(const open_copy& copy) {
        return "bytes from " + with_commas(copy.reached_bytes) +
               " on could not be written: " + error_text(copy.code);
    }

    // Reads copies and sources again.
    static void verify(std::vector<host_copy>& files, std::vector<bool>& good) {
        std::vector<host_copy> again;
        std::vector<std::size_t> numbers;  // in `files`
        const auto judge = [&](std::size_t i, const status& outcome) {
            apps::say(outcome.message);
            good[i] = outcome.ok();
        };
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (!good[i]) continue;
            const planned_copy& plan = *files[i].plan;
            host_copy next{&plan,
                           {.bytes = files[i].copy.bytes, .data = {}},
                           std::move(files[i].source),
                           unique_fd(host::open_past_leases(plan.to, O_RDONLY | flags_of_any))};
            next.copy.code = -ECANCELED;
            struct stat facts {};
            if (next.place < 0 || ::fstat(next.place, &facts) != 0)
                judge(i, about_source(plan.to, -errno, "cp"));
            else if (static_cast<std::uint64_t>(facts.st_size) != next.copy.bytes)
                judge(i, length_differs(plan, static_cast<std::uint64_t>(facts.st_size),
                                        next.copy.bytes));
            if (!good[i]) continue;
            numbers.push_back(i);
            again.push_back(std::move(next));
        }
        on_files(again, compare_all);
        for (std::size_t i = 0; i < again.size(); ++i)
            if (const open_copy& compared = again[i].copy;
                compared.code != 0 && compared.code != -ECANCELED)
                judge(numbers[i], comparing_failed(*again[i].plan, compared));
    }

    const copy_wishes wanted_;
    std::atomic<std::uint64_t> written_{0};
};

}  // namespace

std::unique_ptr<copier> make_host_copier(const copy_wishes& wanted) {
    return std::make_unique<host_copier>(wanted);
}

}  // namespace penstock::cli
