// Requests: missing pages that the service threads read from the operating system's page cache,
// without windows; against pread of the same blocks from all processors. And the round trip of one
// request by one group, with no other group asking.
#include <algorithm>

#include "cases.hpp"
#include "workload.hpp"

namespace penstock::bench {

namespace {

struct request_run {
    context& here;
    std::uint64_t file_bytes, page, cache, service_threads;
    [[nodiscard]] runtime_shape shape() const {
        return {.page_bytes = page,
                .cache_bytes = cache,
                .file_bytes = file_bytes,
                .service_threads = service_threads,
                .worker_threads = here.asked().threads};
    }
};

std::string served_by(std::uint32_t threads) {
    return std::to_string(threads) + (threads == 1 ? " service thread" : " service threads");
}

status throughput(const request_run& run, caller kind) {
    context& here = run.here;
    std::unique_ptr<runtime> rt;
    int fd = -1;
    if (status s = here.make_runtime(run.shape(), rt, fd); !s) return s;
    const std::uint64_t total = std::min(run.file_bytes, (here.on_gpu() ? 1024 : 128) * mib);
    const std::uint64_t groups =
        kind == caller::warps ? group_count(here, *rt, run.page)
                              : std::max<std::uint64_t>(group_count(here, *rt, run.page) / 8, 1);
    pattern ours = make_pattern(run.file_bytes, run.page, run.page, groups, total, false);
    pattern theirs =
        make_pattern(run.file_bytes, run.page, run.page, host_threads(here), total, false);
    series rate, cores, baseline, batch;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        run_result got;
        ours.seed = theirs.seed = repeat;
        if (status s = run_reads(*rt, fd, ours, got, kind); !s) return s;
        if (repeat == 0) continue;  // the first fills the cache
        rate.add(1e-9 * got.loaded_bytes / got.seconds);
        cores.add(got.cores);
        if (got.batch_requests > 0)
            batch.add(got.batch_requests * static_cast<double>(run.page) / 1024);
        if (status s = run_preads(here.file().path(), theirs, false, got); !s) return s;
        baseline.add(gigabytes_a_second(theirs.total_bytes(), got.seconds));
    }
    const std::string by = here.on_gpu() ? (kind == caller::warps ? "warps" : "blocks") : "threads";
    const std::string name = "requests of random pages by " + by + ", " +
                             served_by(*rt->settings().service_threads) + ", " +
                             cache_label(run.cache, run.file_bytes);
    const std::string note = groups_label(here, groups, kind) + ", " + rt->io_name();
    if (status s = here.add({"S8", name, "", run.page, rate, "GB/s",
                             "pread of the same into one buffer a thread, " +
                                 std::to_string(host_threads(here)) + " threads",
                             baseline, cores, note});
        !s)
        return s;
    if (batch.size() == 0) return {};
    return here.add({"S8",
                     name + ", taken together",
                     "",
                     run.page,
                     batch,
                     "KiB",
                     "one page at a time",
                     series(static_cast<double>(run.page) / 1024),
                     {},
                     note});
}

// Microseconds, so less is better; the ratio is turned round.
status round_trip(const request_run& run) {
    context& here = run.here;
    std::unique_ptr<runtime> rt;
    int fd = -1;
    if (status s = here.make_runtime(run.shape(), rt, fd); !s) return s;
    const std::uint64_t rounds = std::min<std::uint64_t>(run.file_bytes / run.page, 4000);
    pattern reads = make_pattern(run.file_bytes, run.page, run.page, 1, rounds * run.page, false);
    series trip, cores, baseline;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        run_result got;
        reads.seed = repeat;
        if (status s = run_reads(*rt, fd, reads, got); !s) return s;
        const double missed = got.loaded_bytes / static_cast<double>(run.page);
        const double ours_s = got.seconds;
        const double used = got.cores;
        if (status s = run_preads(here.file().path(), reads, false, got); !s) return s;
        if (repeat == 0) continue;  // the first loads the kernel
        trip.add(1e6 * ours_s / missed);
        cores.add(used);
        baseline.add(1e6 * got.seconds / static_cast<double>(reads.rounds));
    }
    return here.add(
        {"S8",
         "round trip of one request by one group, " + served_by(*rt->settings().service_threads),
         "", run.page, trip, "us", "pread of one page by one thread", baseline, cores,
         std::to_string(rounds) + " pages one after the other; " + rt->io_name()});
}

}  // namespace

status request_path(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(here.on_gpu() ? 8 * gib : 256 * mib);
    if (status s = here.use_file(file_bytes); !s) return s;
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        for (const std::uint64_t threads : here.service_threads()) {
            for (const std::uint64_t cache : here.caches(file_bytes, page))
                if (status s = throughput({here, file_bytes, page, cache, threads}, caller::warps);
                    !s)
                    return s;
            const request_run run{here, file_bytes, page, std::max(file_bytes / 16, 16 * page),
                                  threads};
            if (here.asked().sweep && here.on_gpu())
                if (status s = throughput(run, caller::blocks); !s) return s;
        }
    const std::uint64_t page = here.pages({4 * kib}).front();
    return round_trip({here, file_bytes, page, std::max(file_bytes / 16, 16 * page),
                       here.asked().service_threads.empty() ? 0 : here.service_threads().front()});
}

}  // namespace penstock::bench
