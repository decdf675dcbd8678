// Misses on the cpu back end: random pages of a file in the operating system's page cache, with a
// Penstock cache smaller than the file, against pread of the same pages.
#include <algorithm>

#include "cases.hpp"
#include "records.hpp"
#include "workload.hpp"

namespace penstock::bench {

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
    pattern what =
        make_pattern(file_bytes, page, page, threads, std::min(file_bytes, 256 * mib), false);
    series loaded, baseline, cores;
    double share = 0;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        what.seed = repeat;
        run_result got;
        if (status s = run_reads(*rt, fd, what, got); !s) return s;
        if (repeat == 0) continue;  // the first fills the cache
        loaded.add(1e-9 * got.loaded_bytes / got.seconds);
        cores.add(got.cores);
        share = got.loaded_bytes / static_cast<double>(what.total_bytes());
        if (status s = run_preads(here.file().path(), what, false, got); !s) return s;
        baseline.add(gigabytes_a_second(what.total_bytes(), got.seconds));
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

}  // namespace penstock::bench
