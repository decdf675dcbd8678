// Reads of a program through a mount, of a file that is not in the host's memory and of which a
// region, or the cache of open and read, has none, a part or all, against the same reads of the
// file itself from its disk. (GAIA, figure 6.1.)
#include <algorithm>
#include <cstdio>
#include <string>

#include "cases.hpp"
#include "mount/mount.hpp"
#include "penstock/region.hpp"
#include "scratch_mount.hpp"
#include "workload.hpp"

namespace penstock::bench {

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
                         : rt_->map_region(here_.file().path(), 0, percent == 100 ? 0 : held,
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
