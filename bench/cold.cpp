// A file that is not in the operating system's page cache: 4 KiB at random and 1 MiB in order,
// through Penstock from many groups, against the best of O_DIRECT and buffered pread from 64
// threads.
#include <algorithm>
#include <cerrno>

#include "cases.hpp"
#include "workload.hpp"

namespace penstock::bench {

namespace {

struct cold_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    std::uint64_t most_bytes;  // of one run
};

struct cold_series {
    series ours, cores, direct, buffered;
    double left = 0;  // the largest share of the file that stayed in memory when it was dropped
    bool has_direct = true;
    std::uint64_t groups = 0;
};

void measure_cold(context& here, const runtime_shape& shape, const cold_access& access,
                  std::uint64_t repeat, cold_series& out) {
    // The file is dropped before each run.
    const auto reads_by = [&](std::uint64_t groups, std::uint64_t seed) {
        out.left = std::max(out.left, here.file().drop_from_page_cache());
        pattern reads =
            make_pattern(shape.file_bytes, access.block_bytes, groups,
                         std::min(shape.file_bytes, access.most_bytes), access.in_order);
        reads.seed = 3 * repeat + seed;
        return reads;
    };
    {
        const opened_file file = here.open(shape);
        out.groups = group_count(here, *file.rt, access.block_bytes);
        const run_result got = run_reads(file, reads_by(out.groups, 0));
        out.ours.add(got.rate);
        out.cores.add(got.cores);
    }
    const std::string& path = here.file().path();
    try {
        if (out.has_direct)
            out.direct.add(run_preads(path, reads_by(here.threads(64), 1), true).rate);
    } catch (const failure& ended) {
        if (ended.code != -EINVAL) throw;
        out.has_direct = false;
    }
    out.buffered.add(run_preads(path, reads_by(here.threads(64), 2)).rate);
}

std::string honest_note(const context& here, const cold_series& all, bool direct_is_best) {
    const series& second = direct_is_best ? all.buffered : all.direct;
    return groups_label(here, all.groups) + "; " +
           (!all.has_direct ? "this file system has no O_DIRECT"
                            : text_of(direct_is_best ? "buffered pread: %.4g GB/s"
                                                     : "pread with O_DIRECT: %.4g GB/s",
                                      second.median())) +
           text_of("; %.2f %% of the file stayed in the page cache when it was dropped%s",
                   100 * all.left, all.left > 0.01 ? not_cold : "");
}

void one_access(context& here, std::uint64_t file_bytes, std::uint64_t page,
                const cold_access& access) {
    for (const std::uint64_t cache : here.caches(file_bytes, page)) {
        runtime_shape shape{.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes};
        // A thread is one group there, and waits for the disk most of the time.
        if (!here.on_gpu()) shape.worker_threads = here.threads(64);
        cold_series all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat)
            measure_cold(here, shape, access, repeat, all);
        const bool direct_is_best = all.has_direct && all.direct.median() > all.buffered.median();
        here.add({"S7",
                  std::string("cold, ") + access.name + ", " + cache_label(cache, file_bytes),
                  page,
                  "GB/s",
                  {all.ours, direct_is_best ? all.direct : all.buffered, all.cores},
                  (direct_is_best ? "O_DIRECT pread, " : "buffered pread, ") +
                      std::to_string(here.threads(64)) + " threads, the better of the two",
                  honest_note(here, all, direct_is_best)});
    }
}

}  // namespace

void cold(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(8 * gib, gib);
    here.use_file(file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib}))
        one_access(here, file_bytes, page, {"4 KiB at random", 4 * kib, false, 256 * mib});
    for (const std::uint64_t page : here.pages({64 * kib, mib}))
        one_access(here, file_bytes, page, {"1 MiB in order", mib, true, 4 * gib});
}

}  // namespace penstock::bench
