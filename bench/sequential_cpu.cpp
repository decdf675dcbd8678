// A whole file through the cache of the cpu back end, in order, against pread of the same pieces;
// and brought in by prefetch.
#include "cases.hpp"
#include "workload.hpp"

namespace penstock::bench {

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
