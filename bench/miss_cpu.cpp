// Pages that are not cached, on the cpu back end: at random, and a whole file in order.
#include <algorithm>

#include "cases.hpp"
#include "workload.hpp"

namespace penstock::bench {

// Misses on the cpu back end: random pages of a file in the operating system's page cache, with a
// Penstock cache smaller than the file, against pread of the same pages.

namespace {

status random_pages(context& here, std::uint64_t file_bytes, std::uint64_t page,
                    std::uint64_t cache) {
    const std::uint64_t threads = host_threads(here);
    std::unique_ptr<runtime> rt;
    int fd = -1;
    if (status s = here.make_runtime({.page_bytes = page,
                                      .cache_bytes = cache,
                                      .file_bytes = file_bytes,
                                      .worker_threads = threads},
                                     rt, fd);
        !s)
        return s;
    pattern order =
        make_pattern(file_bytes, page, page, threads, std::min(file_bytes, 256 * mib), false);
    series loaded, baseline, cores;
    double share = 0;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        order.seed = repeat;
        run_result got;
        if (status s = run_reads(*rt, fd, order, got); !s) return s;
        if (repeat == 0) continue;  // the first fills the cache
        loaded.add(1e-9 * got.loaded_bytes / got.seconds);
        cores.add(got.cores);
        share = got.loaded_bytes / static_cast<double>(order.total_bytes());
        if (status s = run_preads(here.file().path(), order, false, got); !s) return s;
        baseline.add(gigabytes_a_second(order.total_bytes(), got.seconds));
    }
    char note[160];
    std::snprintf(note, sizeof note,
                  "%.3f million misses/s; %.3f of the pages missed in the last run",
                  1e3 * loaded.median() / static_cast<double>(page), share);
    return here.add({page == 512 ? "S5" : "S4",
                     "loads of random pages, " + cache_label(cache, file_bytes), "", page, loaded,
                     "GB/s", "pread of the same pages, " + std::to_string(threads) + " threads",
                     baseline, cores, note});
}

}  // namespace

status miss_on_cpu(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(256 * mib);
    if (status s = here.use_file(file_bytes); !s) return s;
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        for (const std::uint64_t cache : here.caches(file_bytes, page))
            if (status s = random_pages(here, file_bytes, page, cache); !s) return s;
        if (status s = random_records(here, file_bytes, page); !s) return s;
    }
    return here.asked().sweep ? fewer_shards(here, file_bytes, 4 * kib) : status{};
}

// A whole file through the cache of the cpu back end, in order, against pread of the same pieces;
// and brought in by prefetch.

namespace {

// The runtime is new each time, so the time has the page faults of its frames in it; pread reuses
// its buffers.
constexpr const char* first_touch = "the frames are memory that is touched for the first time";

struct ways {
    series reads, reads_cores, prefetch, prefetch_cores, again, preads;
};

status one_prefetch(runtime& rt, int fd, std::uint64_t bytes, series& rate, series& cores) {
    const stopwatch watch;
    const std::int64_t got = rt.prefetch(fd, 0, static_cast<std::int64_t>(bytes));
    const double seconds = watch.seconds();
    if (got != static_cast<std::int64_t>(bytes))
        return {got < 0 ? static_cast<int>(got) : -EIO,
                "prefetch brought " + std::to_string(got) + " bytes"};
    rate.add(gigabytes_a_second(bytes, seconds));
    cores.add(watch.cores(seconds));
    return {};
}

status measure_once(context& here, const runtime_shape& shape, const pattern& pieces, ways& out) {
    std::unique_ptr<runtime> rt;
    int fd = -1;
    run_result got;
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    if (status s = run_reads(*rt, fd, pieces, got); !s) return s;
    out.reads.add(gigabytes_a_second(pieces.total_bytes(), got.seconds));
    out.reads_cores.add(got.cores);
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    if (status s = one_prefetch(*rt, fd, shape.file_bytes, out.prefetch, out.prefetch_cores); !s)
        return s;
    series unused;
    if (status s = one_prefetch(*rt, fd, shape.file_bytes, out.again, unused); !s) return s;
    rt.reset();
    if (status s = run_preads(here.file().path(), pieces, false, got); !s) return s;
    out.preads.add(gigabytes_a_second(pieces.total_bytes(), got.seconds));
    return {};
}

}  // namespace

status sequential_on_cpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(256 * mib), threads = host_threads(here);
    if (status s = here.use_file(bytes); !s) return s;
    for (const std::uint64_t page : here.pages({64 * kib})) {
        const runtime_shape shape{.page_bytes = page,
                                  .cache_bytes = bytes + bytes / 8 + 16 * page,
                                  .file_bytes = bytes,
                                  .worker_threads = threads};
        const pattern pieces = make_pattern(bytes, mib, mib, threads, bytes, true);
        ways all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            if (status s = measure_once(here, shape, pieces, all); !s) return s;
        const std::string count = groups_label(here, threads),
                          baseline = "pread of the same pieces of 1 MiB, " + count;
        if (status s = here.add({"S6", "whole file, by requests", "", page, all.reads, "GB/s",
                                 baseline, all.preads, all.reads_cores,
                                 "pieces of 1 MiB, " + count + "; " + first_touch});
            !s)
            return s;
        if (status s = here.add({"S6", "whole file, prefetch by one thread", "", page, all.prefetch,
                                 "GB/s", baseline, all.preads, all.prefetch_cores, first_touch});
            !s)
            return s;
        if (status s = here.add({"S6",
                                 "whole file, in the cache already: look-ups only",
                                 "",
                                 page,
                                 all.again,
                                 "GB/s",
                                 "the same when it had to be loaded",
                                 all.prefetch,
                                 {},
                                 "no byte is copied"});
            !s)
            return s;
    }
    return {};
}

}  // namespace penstock::bench
