// Parts of workload.hpp for the host: the baseline by pread, records at random, and windows.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "workload.hpp"

namespace penstock::bench {

// The baseline of most cases: the same blocks by pread.

namespace {

// One thread's part. 0 or a negative errno; -EIO also for bytes that are not the file's.
int read_part(int fd, const pattern& reads, std::uint64_t thread, std::byte* buffer) {
    for (std::uint64_t i = 0; i < reads.rounds; ++i) {
        const std::uint64_t at = reads.offset_bytes(thread, i);
        for (std::uint64_t done = 0; done < reads.block_bytes;) {
            const ssize_t got =
                ::pread(fd, buffer + done, reads.block_bytes - done, static_cast<off_t>(at + done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return got < 0 ? -errno : -EIO;
            done += static_cast<std::uint64_t>(got);
        }
        std::uint64_t first = 0;
        std::memcpy(&first, buffer, sizeof first);
        if (first != mix64(at / 8)) return -EIO;
    }
    return 0;
}

}  // namespace

status run_preads(const std::string& path, const pattern& reads, bool direct, run_result& out) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    if (fd < 0)
        return {-errno, "file " + apps::shown(path) + ": " + error_text(-errno) +
                            "; it must stay while it is measured"};
    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> buffers;
    bool room = true;
    for (std::uint64_t t = 0; t < reads.groups; ++t) {
        buffers.emplace_back(static_cast<std::byte*>(std::aligned_alloc(
                                 4096, (reads.block_bytes + 4095) / 4096 * 4096)),
                             std::free);
        room = room && buffers.back() != nullptr;
        if (room) std::memset(buffers.back().get(), 1, reads.block_bytes);
    }
    std::atomic<int> code{room ? 0 : -ENOMEM};
    const stopwatch watch;
    apps::on_new_threads(room ? static_cast<std::uint32_t>(reads.groups) : 0, [&](std::uint32_t t) {
        if (const int failed = read_part(fd, reads, t, buffers[t].get()); failed != 0)
            code = failed;
    });
    out.seconds = watch.seconds();
    out.cores = watch.cores(out.seconds);
    ::close(fd);
    if (code == 0) return {};
    return {code, std::string(direct ? "pread with O_DIRECT" : "pread") + " of " +
                      apps::shown(path) + ": " + error_text(code)};
}

namespace {

struct record {
    const char* name;
    std::uint64_t bytes, step_bytes;
};

status one_record_size(context& here, std::uint64_t file_bytes, std::uint64_t page,
                       const record& kind) {
    series rate, baseline, cores, waste;
    std::uint64_t groups = 0;
    const std::uint64_t cache = std::max(file_bytes / 16, 16 * page),
                        total = std::min(file_bytes / 4, (here.on_gpu() ? 1024 : 64) * mib);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        std::unique_ptr<runtime> rt;
        int fd = -1;
        if (status s = here.make_runtime(
                {.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes}, rt, fd);
            !s)
            return s;
        if (status s = open_all_windows(here, *rt, fd, file_bytes); !s) return s;
        groups = group_count(here, *rt, kind.bytes);
        pattern ours = make_pattern(file_bytes, kind.bytes, kind.step_bytes, groups, total, false);
        ours.seed = repeat;
        run_result got;
        if (status s = run_reads(*rt, fd, ours, got); !s) return s;
        rate.add(gigabytes_a_second(ours.total_bytes(), got.seconds));
        cores.add(got.cores);
        waste.add(got.loaded_bytes / static_cast<double>(ours.total_bytes()));
        pattern theirs =
            make_pattern(file_bytes, kind.bytes, kind.step_bytes, host_threads(here), total, false);
        theirs.seed = repeat;
        if (status s = run_preads(here.file().path(), theirs, false, got); !s) return s;
        baseline.add(gigabytes_a_second(theirs.total_bytes(), got.seconds));
    }
    const std::string note = groups_label(here, groups) + "; " + cache_label(cache, file_bytes) +
                             " of " + format_size(file_bytes);
    if (status s = here.add({"S4", std::string("random ") + kind.name, "", page, rate, "GB/s",
                             "pread of the same into one buffer a thread, " +
                                 std::to_string(host_threads(here)) + " threads",
                             baseline, cores, note + "; counted is what was asked for"});
        !s)
        return s;
    return here.add({"S4", std::string("random ") + kind.name + ", loaded", "", page, waste,
                     "bytes loaded per byte asked for", "each byte once", series(1), cores, note});
}

}  // namespace

status open_all_windows(const context& here, runtime& rt, int fd, std::uint64_t file_bytes) {
    if (!here.on_gpu()) return {};
    const std::int64_t inside = rt.open_windows(fd);
    if (inside == static_cast<std::int64_t>(file_bytes)) return {};
    return {inside < 0 ? static_cast<int>(inside) : -ENOMEM,
            inside < 0 ? "windows: " + error_text(inside)
                       : "only " + format_size(static_cast<std::uint64_t>(inside)) +
                             " of the file lie in windows; the rest is not in the page cache or "
                             "beyond PENSTOCK_WINDOW: give a smaller --file"};
}

status random_records(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes) {
    for (const record& kind :
         {record{"records of 3 KiB", 3 * kib, 4 * kib}, record{"blocks of 32 KiB", 32 * kib, 512}})
        if (status s = one_record_size(here, file_bytes, page_bytes, kind); !s) return s;
    return {};
}

status fewer_shards(context& here, std::uint64_t file_bytes, std::uint64_t page) {
    const std::uint64_t cache = std::max(file_bytes / 16, 16 * page),
                        total = std::min(file_bytes, (here.on_gpu() ? 4096 : 64) * mib);
    std::vector<std::uint32_t> shards;
    std::vector<series> seconds, cores;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        std::uint32_t count = 0;  // what the runtime chose, to begin with
        for (std::size_t i = 0; i == 0 || count >= 1; ++i) {
            std::unique_ptr<runtime> rt;
            int fd = -1;
            if (status s = here.make_runtime(
                    {.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes}, rt, fd);
                !s)
                return s;
            if (status s = open_all_windows(here, *rt, fd, file_bytes); !s) return s;
            if (i == 0) count = rt->ref().view.clock_shards;
            if (repeat == 0) shards.push_back(count), seconds.emplace_back(), cores.emplace_back();
            pattern reads =
                make_pattern(file_bytes, page, page, group_count(here, *rt, page), total, false);
            reads.seed = repeat;
            run_result got;
            if (status s = run_reads(*rt, fd, reads, got, caller::warps, count); !s) return s;
            seconds[i].add(got.seconds);
            cores[i].add(got.cores);
            count = count > 1 ? std::max(count / 4, 1u) : 0;  // one shard comes last
        }
    }
    for (std::size_t i = 0; i < shards.size(); ++i)
        if (status s = here.add({"S4",
                                 "random pages, " + std::to_string(shards[i]) +
                                     (shards[i] == 1 ? " clock shard" : " clock shards"),
                                 "", page, seconds[i], "s",
                                 "the same with " + std::to_string(shards[0]), seconds[0], cores[i],
                                 format_size(total) + " read, " + cache_label(cache, file_bytes)});
            !s)
            return s;
    return {};
}

}  // namespace penstock::bench
