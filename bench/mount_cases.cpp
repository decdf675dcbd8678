// Cases at a mount: programs there against the file itself, and reads of a file that a region or
// the cache has in part.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "common/leftover.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "context.hpp"
#include "mount/mount.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/mount.hpp"
#include "penstock/region.hpp"
#include "workload.hpp"

namespace penstock::bench {

// A mount of this process over a folder that has the scratch file, for as long as a case measures
// it; gone when the program ends, also by a signal.
class scratch_mount {
public:
    ~scratch_mount() { remove(); }
    scratch_mount() = default;
    scratch_mount(const scratch_mount&) = delete;
    scratch_mount& operator=(const scratch_mount&) = delete;

    // A new folder in --dir, in it one with a second name of the case's file, and a mount of that.
    status make(runtime& rt, context& here);
    void remove();

    [[nodiscard]] std::string file() const { return point_ + "/file"; }
    [[nodiscard]] const std::string& point() const { return point_; }
    [[nodiscard]] const std::string& source() const { return source_; }
    [[nodiscard]] mount_report report() const { return mount_->report(); }
    // The kernel keeps nothing of the file for programs of the mount.
    status forget_pages() const;

private:
    std::string top_, source_, point_;
    std::unique_ptr<file_mount> mount_;
    apps::leftover noted_[4];  // for signals
};

namespace {

status failed(const std::string& path, int code) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; name another --dir"};
}

}  // namespace

status scratch_mount::make(runtime& rt, context& here) {
    remove();
    std::string top = here.asked().directory + "/penstock-bench-XXXXXX";
    {
        const apps::signal_pause until_noted;
        if (::mkdtemp(top.data()) == nullptr) return failed(top, -errno);
        top_ = top, source_ = top + "/source", point_ = top + "/point";
        // Folders are removed with the files in them, in this order; the mount is taken away
        // before.
        noted_[0].mount(point_), noted_[1].folder(point_), noted_[2].folder(source_),
            noted_[3].folder(top_);
    }
    std::error_code code;
    for (const std::string& folder : {source_, point_})
        if (!std::filesystem::create_directory(folder, code)) return failed(folder, -code.value());
    if (::link(here.file().path().c_str(), (source_ + "/file").c_str()) != 0)
        return failed(source_ + "/file", -errno);
    return mount_directory(rt, source_, point_, {}, mount_);
}

void scratch_mount::remove() {
    if (top_.empty()) return;
    mount_.reset();
    std::error_code ignored;
    // Not what a mount shows that is still there.
    std::filesystem::remove(source_ + "/file", ignored);
    for (const std::string& folder : {point_, source_, top_})
        std::filesystem::remove(folder, ignored);
    for (apps::leftover& one : noted_) one.forget();
    top_.clear();
}

status scratch_mount::forget_pages() const {
    const int fd = ::open(file().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(file(), -errno);
    const int code = -::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    return code == 0 ? status{} : failed(file(), code);
}

// Programs at a mount of this process against the same at the file itself, which is in memory: what
// the way through the kernel and back costs. (Beside another pass-through file system:
// tools/mount_bench.py.)

namespace {

enum class act { read, read_again, write };
struct mount_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    act what;
};
constexpr mount_access mount_accesses[] = {
    {"1 MiB in order, read", mib, true, act::read},
    {"1 MiB in order, read again", mib, true, act::read_again},
    {"4 KiB at random, read", 4 * kib, false, act::read},
    {"1 MiB in order, written", mib, true, act::write},
    {"4 KiB at random, written", 4 * kib, false, act::write}};

// Writes what the file has already, so that it stays what other cases expect.
status write_blocks(const std::string& path, const pattern& what, run_result& out) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return {-errno, path + ": " + error_text(-errno)};
    std::atomic<int> code{0};
    const stopwatch watch;
    apps::on_new_threads(static_cast<std::uint32_t>(what.groups), [&](std::uint32_t t) {
        std::vector<std::uint64_t> words(what.block_bytes / 8);
        for (std::uint64_t i = 0; i < what.rounds; ++i) {
            const std::uint64_t at = what.offset_bytes(t, i);
            for (std::uint64_t w = 0; w < words.size(); ++w) words[w] = mix64(at / 8 + w);
            const ssize_t done =
                ::pwrite(fd, words.data(), what.block_bytes, static_cast<off_t>(at));
            if (done != static_cast<ssize_t>(what.block_bytes)) code = done < 0 ? -errno : -EIO;
        }
    });
    out.seconds = watch.seconds();
    out.cores = watch.cores(out.seconds);
    ::close(fd);
    return code == 0 ? status{} : status{code, "pwrite of " + path + ": " + error_text(code)};
}

class mount_case_runner {
public:
    explicit mount_case_runner(context& here)
        : here_(here), bytes_(std::max(mib, here.file_bytes(gib) / mib * mib)) {}

    status run() {
        if (status s = here_.use_file(bytes_); !s) return s;
        if (status s = here_.make_runtime(
                {.page_bytes = 65536, .cache_bytes = 64 * mib, .file_bytes = bytes_}, rt_);
            !s)
            return s;
        if (status s = mounted_.make(*rt_, here_); !s) return s;
        if (status s = here_.file().bring_into_page_cache(); !s) return s;
        for (const mount_access& how : mount_accesses)
            for (const std::uint64_t threads : {std::uint64_t{1}, host_threads(here_)})
                if (status s = row(how, threads); !s) return s;
        return {};
    }

private:
    status once(const std::string& path, const mount_access& how, const pattern& what,
                run_result& got) const {
        if (how.what == act::write) return write_blocks(path, what, got);
        if (how.what == act::read_again)
            if (status s = run_preads(path, what, false, got); !s) return s;
        return run_preads(path, what, false, got);
    }
    status row(const mount_access& how, std::uint64_t threads) {
        const std::uint64_t total = how.in_order ? bytes_ : std::min(bytes_, 64 * mib * threads);
        pattern what =
            make_pattern(bytes_, how.block_bytes, how.block_bytes, threads, total, how.in_order);
        series ours, plain, cores;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            run_result got;
            what.seed = repeat;
            if (status s = mounted_.forget_pages(); !s) return s;
            if (status s = once(mounted_.file(), how, what, got); !s) return s;
            ours.add(gigabytes_a_second(what.total_bytes(), got.seconds));
            cores.add(got.cores);
            if (status s = once(here_.file().path(), how, what, got); !s) return s;
            plain.add(gigabytes_a_second(what.total_bytes(), got.seconds));
        }
        const std::string of = threads == 1 ? "1 thread" : std::to_string(threads) + " threads";
        return here_.add({"5", std::string("at a mount: ") + how.name + ", " + of, "", 0, ours,
                          "GB/s", "the same at the file itself", plain, cores,
                          "the file is in memory"});
    }

    context& here_;
    const std::uint64_t bytes_;
    std::unique_ptr<runtime> rt_;
    scratch_mount mounted_;
};

}  // namespace

status mount_case(context& here) {
    if (const status s = mount::can_mount(); !s) {
        here.leave_out("mount", s.message);
        return {};
    }
    mount_case_runner one(here);
    return one.run();
}

// Reads of a program through a mount, of a file that is not in the host's memory and of which a
// region, or the cache of open and read, has none, a part or all, against the same reads of the
// file itself from its disk. (GAIA, figure 6.1.)

namespace {

struct peer_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    std::uint64_t most_bytes;  // of one thread and run
};
constexpr peer_access peer_accesses[] = {{"4 KiB at random", 4 * kib, false, 64 * mib},
                                         {"1 MiB in order", mib, true, gib}};

class peer_case {
public:
    explicit peer_case(context& here)
        : here_(here), bytes_(std::max(mib, here.file_bytes(gib) / mib * mib)) {}

    status run() {
        if (const status s = mount::can_mount(); !s) {
            here_.leave_out("peer", s.message);
            return {};
        }
        if (status s = here_.use_file(bytes_); !s) return s;
        // Room for the whole file, beside what comes and goes.
        if (status s = here_.make_runtime(
                {.page_bytes = page_bytes, .cache_bytes = bytes_ + 64 * mib, .file_bytes = bytes_},
                rt_);
            !s)
            return s;
        if (status s = mounted_.make(*rt_, here_); !s) return s;
        for (const unsigned percent : {0u, 25u, 50u, 100u}) {
            if (status s = map(percent); !s) return s;
            if (status s = rows(percent, "with a region"); !s) return s;
        }
        region_.reset();
        for (const unsigned percent : {25u, 50u, 100u}) {
            if (status s = load(percent); !s) return s;
            if (status s = rows(percent, "in the cache of open and read"); !s) return s;
        }
        return {};
    }

private:
    static constexpr std::uint64_t page_bytes = 65536;

    status map(unsigned percent) {
        region_.reset();
        const std::uint64_t held = bytes_ / 100 * percent / 4096 * 4096;
        return held == 0 ? status{}
                         : map_region(*rt_, here_.file().path(), 0, percent == 100 ? 0 : held,
                                      protection::read, {.outside_writers = false}, region_);
    }
    // Stands for a kernel that has read so much of it.
    status load(unsigned percent) {
        const std::string& path = here_.file().path();
        const int file = rt_->open(path);
        if (file < 0) return {file, path + ": " + error_text(file)};
        const std::int64_t there = rt_->prefetch(
            file, 0,
            static_cast<std::int64_t>(
                percent == 100 ? bytes_ : bytes_ / 100 * percent / page_bytes * page_bytes));
        rt_->close(file);
        return there < 0 ? status{static_cast<int>(there), path + ": " + error_text(there)}
                         : status{};
    }
    status rows(unsigned percent, const char* where) {
        for (const peer_access& how : peer_accesses)
            for (const std::uint64_t threads : {std::uint64_t{1}, host_threads(here_)})
                if (status s = row(percent, where, how, threads); !s) return s;
        return {};
    }
    status drop(double& left) {
        double now = 0;
        if (status s = mounted_.forget_pages(); !s) return s;
        if (status s = here_.file().drop_from_page_cache(now); !s) return s;
        left = std::max(left, now);
        return {};
    }
    status row(unsigned percent, const char* where, const peer_access& how, std::uint64_t threads) {
        // In order each thread has its own part of the file, one behind the other.
        const std::uint64_t total =
            how.in_order ? bytes_ : std::min(bytes_, how.most_bytes * threads);
        pattern what =
            make_pattern(bytes_, how.block_bytes, how.block_bytes, threads, total, how.in_order);
        series ours, disk, cores;
        double left = 0, given = 0, asked = 0;
        for (std::uint64_t repeat = 0; repeat < here_.repeats(3); ++repeat) {
            run_result got;
            what.seed = 2 * repeat;
            if (status s = drop(left); !s) return s;
            const mount_report before = mounted_.report();
            if (status s = run_preads(mounted_.file(), what, false, got); !s) return s;
            ours.add(gigabytes_a_second(what.total_bytes(), got.seconds));
            cores.add(got.cores);
            const mount_report after = mounted_.report();
            given += static_cast<double>(after.bytes_from_devices - before.bytes_from_devices);
            asked += static_cast<double>(after.bytes_asked - before.bytes_asked);
            what.seed = 2 * repeat + 1;
            if (status s = drop(left); !s) return s;
            if (status s = run_preads(here_.file().path(), what, false, got); !s) return s;
            disk.add(gigabytes_a_second(what.total_bytes(), got.seconds));
        }
        char note[200];
        std::snprintf(note, sizeof note,
                      "%.1f %% of what the kernel asked for came from there; %.2f %% of the file "
                      "stayed in memory when it was dropped%s",
                      asked > 0 ? 100 * given / asked : 0, 100 * left,
                      left > 0.01 ? ": NOT a cold file, so these figures are not the disk's" : "");
        const std::string of = threads == 1 ? "1 thread" : std::to_string(threads) + " threads";
        return here_.add({"S13",
                          std::string("a program reads ") + how.name + ", " + of + ", " +
                              std::to_string(percent) + " % of the file " + where,
                          "", 4096, ours, "GB/s", "the same from the file system", disk, cores,
                          note});
    }

    context& here_;
    const std::uint64_t bytes_;
    std::unique_ptr<runtime> rt_;
    scratch_mount mounted_;
    std::unique_ptr<file_region> region_;
};

}  // namespace

status peer(context& here) {
    peer_case one(here);
    return one.run();
}

}  // namespace penstock::bench
