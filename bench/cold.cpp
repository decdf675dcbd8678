// A file that is not in the operating system's page cache: 4 KiB at random and 1 MiB in order,
// through Penstock from many groups, against the best of O_DIRECT and buffered pread from 64
// threads.
#include <algorithm>

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

// Drops the file and looks whether it is gone.
status drop(const context& here, cold_series& out) {
    double left = 0;
    if (status s = here.file().drop_from_page_cache(left); !s) return s;
    out.left = std::max(out.left, left);
    return {};
}

status measure_once(context& here, const runtime_shape& shape, const cold_access& access,
                    std::uint64_t repeat, cold_series& out) {
    const std::uint64_t total = std::min(shape.file_bytes, access.most_bytes);
    run_result got;
    {
        std::unique_ptr<runtime> rt;
        int fd = -1;
        if (status s = here.make_runtime(shape, rt, fd); !s) return s;
        out.groups = group_count(here, *rt, access.block_bytes);
        pattern ours = make_pattern(shape.file_bytes, access.block_bytes, access.block_bytes,
                                    out.groups, total, access.in_order);
        ours.seed = 3 * repeat;
        if (status s = drop(here, out); !s) return s;
        if (status s = run_reads(*rt, fd, ours, got); !s) return s;
        out.ours.add(gigabytes_a_second(ours.total_bytes(), got.seconds));
        out.cores.add(got.cores);
    }
    pattern theirs = make_pattern(shape.file_bytes, access.block_bytes, access.block_bytes,
                                  here.threads(64), total, access.in_order);
    theirs.seed = 3 * repeat + 1;
    if (out.has_direct) {
        if (status s = drop(here, out); !s) return s;
        const status direct = run_preads(here.file().path(), theirs, true, got);
        if (direct.ok()) out.direct.add(gigabytes_a_second(theirs.total_bytes(), got.seconds));
        else if (direct.code == -EINVAL) out.has_direct = false;
        else return direct;
    }
    theirs.seed = 3 * repeat + 2;
    if (status s = drop(here, out); !s) return s;
    if (status s = run_preads(here.file().path(), theirs, false, got); !s) return s;
    out.buffered.add(gigabytes_a_second(theirs.total_bytes(), got.seconds));
    return {};
}

std::string honest_note(const context& here, const cold_series& all, bool direct_is_best) {
    char text[160];
    const std::string other = !all.has_direct  ? "this file system has no O_DIRECT"
                              : direct_is_best ? "buffered pread"
                                               : "pread with O_DIRECT";
    const series& second = direct_is_best ? all.buffered : all.direct;
    std::string out = groups_label(here, all.groups) + "; " + other;
    if (all.has_direct) {
        std::snprintf(text, sizeof text, ": %.4g GB/s", second.median());
        out += text;
    }
    std::snprintf(text, sizeof text,
                  "; %.2f %% of the file stayed in the page cache when it was dropped",
                  100 * all.left);
    out += text;
    if (all.left > 0.01) out += ": NOT a cold file, so these figures are not the disk's";
    return out;
}

status one_access(context& here, std::uint64_t file_bytes, std::uint64_t page, std::uint64_t cache,
                  const cold_access& access) {
    runtime_shape shape{.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes};
    // A thread is one group there, and waits for the disk most of the time.
    if (!here.on_gpu()) shape.worker_threads = here.threads(64);
    cold_series all;
    for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat)
        if (status s = measure_once(here, shape, access, repeat, all); !s) return s;
    const bool direct_is_best = all.has_direct && all.direct.median() > all.buffered.median();
    const std::string threads = std::to_string(here.threads(64)) + " threads";
    return here.add({"S7",
                     std::string("cold, ") + access.name + ", " + cache_label(cache, file_bytes),
                     "", page, all.ours, "GB/s",
                     (direct_is_best ? "O_DIRECT pread, " : "buffered pread, ") + threads +
                         ", the better of the two",
                     direct_is_best ? all.direct : all.buffered, all.cores,
                     honest_note(here, all, direct_is_best)});
}

}  // namespace

status cold(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(here.on_gpu() ? 8 * gib : gib);
    if (status s = here.use_file(file_bytes); !s) return s;
    const cold_access random{"4 KiB at random", 4 * kib, false, 256 * mib},
        in_order{"1 MiB in order", mib, true, 4 * gib};
    for (const std::uint64_t page : here.pages({4 * kib}))
        for (const std::uint64_t cache : here.caches(file_bytes, page))
            if (status s = one_access(here, file_bytes, page, cache, random); !s) return s;
    for (const std::uint64_t page : here.pages({64 * kib, mib}))
        for (const std::uint64_t cache : here.caches(file_bytes, page))
            if (status s = one_access(here, file_bytes, page, cache, in_order); !s) return s;
    return {};
}

}  // namespace penstock::bench
