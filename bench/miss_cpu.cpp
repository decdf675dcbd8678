// Pages that are not cached, on the cpu back end: at random, and a whole file in order; and the
// records at random that both back ends read.
#include "cases.hpp"

namespace penstock::bench {

// Misses on the cpu back end: random pages of a file in the operating system's page cache, with a
// Penstock cache smaller than the file, against pread of the same pages.

namespace {

void random_pages(context& here, std::uint64_t page, std::uint64_t cache) {
    const std::uint64_t threads = here.host_threads();
    const opened_file file =
        here.open({.page_bytes = page, .cache_bytes = cache, .worker_threads = threads});
    pattern order = make_pattern(here, page, threads, std::min(here.bytes(), 256 * mib));
    measured loads;
    double share = 0;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        order.seed = repeat;
        const run_result got = run_reads(file, order),
                         other = run_preads(here.file().path(), order);
        if (repeat == 0) continue;  // the first fills the cache
        loads.ours.add(1e-9 * got.loaded_bytes / got.seconds);
        loads.cores.add(got.cores);
        share = got.loaded_bytes / order.total_bytes();
        loads.baseline.add(other.rate);
    }
    here.add(page == 512 ? "S5" : "S4", "loads of random pages, " + here.cache_label(cache), page,
             "GB/s", loads, "pread of the same pages, " + std::to_string(threads) + " threads",
             text_of("%.3f million misses/s; %.3f of the pages missed in the last run",
                     1e3 * loads.ours.median() / page, share));
}

struct record {
    const char* name;
    std::uint64_t bytes, step_bytes;
};

void one_record_size(context& here, std::uint64_t page, const record& kind,
                     const plain_reads& plain) {
    measured records;
    series waste, kernel;
    std::uint64_t groups = 0;
    const std::uint64_t cache = here.small_cache(page),
                        total = std::min(here.bytes() / 4, (here.on_gpu() ? 1024 : 64) * mib);
    const auto reads_by = [&](std::uint64_t readers, std::uint64_t seed) {
        pattern out = make_pattern(here, kind.bytes, readers, total, false, kind.step_bytes);
        out.seed = seed;
        return out;
    };
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
        open_all_windows(here, file);
        groups = group_count(here, *file.rt, kind.bytes);
        const pattern ours = reads_by(groups, repeat);
        const run_result got = run_reads(file, ours);
        records.add(got);
        waste.add(got.loaded_bytes / ours.total_bytes());
        records.baseline.add(
            run_preads(here.file().path(), reads_by(here.host_threads(), repeat)).rate);
        if (plain) kernel.add(gigabytes_a_second(ours.total_bytes(), plain(ours).seconds));
    }
    const std::string name = std::string("random ") + kind.name,
                      note = groups_label(here, groups) + "; " + here.cache_label(cache) + " of " +
                             format_size(here.bytes());
    here.add("S4", name, page, "GB/s", records, pread_by_all(here),
             note + "; counted is what was asked for");
    if (plain)
        here.add("S4", name + ", beside a kernel", page, "GB/s",
                 {records.ours, kernel, records.cores},
                 "warps copying the same from registered host memory", note);
    here.add("S4", name + ", loaded", page, "bytes loaded per byte asked for",
             {waste, series(1), records.cores}, "each byte once", note);
}

}  // namespace

void miss_on_cpu(context& here) {
    here.use_file(here.file_bytes(256 * mib));
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        for (const std::uint64_t cache : here.caches(page)) random_pages(here, page, cache);
        random_records(here, page);
    }
    if (here.asked().sweep) fewer_shards(here, 4 * kib);
}

void random_records(context& here, std::uint64_t page_bytes, const plain_reads& plain) {
    one_record_size(here, page_bytes, {"records of 3 KiB", 3 * kib, 4 * kib}, plain);
    one_record_size(here, page_bytes, {"blocks of 32 KiB", 32 * kib, 512}, plain);
}

void fewer_shards(context& here, std::uint64_t page) {
    const std::uint64_t cache = here.small_cache(page),
                        total = std::min(here.bytes(), (here.on_gpu() ? 4096 : 64) * mib);
    std::vector<std::uint32_t> shards;
    std::vector<measured> runs;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        std::uint32_t count = 0;  // what the runtime chose, to begin with
        for (std::size_t i = 0; i == 0 || count >= 1; ++i) {
            const opened_file file = here.open({.page_bytes = page, .cache_bytes = cache});
            open_all_windows(here, file);
            if (i == 0) count = file.rt->ref().view.clock_shards;
            if (repeat == 0) {
                shards.push_back(count);
                runs.emplace_back();
            }
            pattern reads = make_pattern(here, page, group_count(here, *file.rt, page), total);
            reads.seed = repeat;
            const run_result got = run_reads(file, reads, caller::warps, count);
            runs[i].ours.add(got.seconds);
            runs[i].cores.add(got.cores);
            count = count > 1 ? std::max(count / 4, 1u) : 0;  // one shard comes last
        }
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
        runs[i].baseline = runs[0].ours;
        here.add("S4", "random pages, " + counted(shards[i], "clock shard"), page, "s", runs[i],
                 "the same with " + std::to_string(shards[0]),
                 format_size(total) + " read, " + here.cache_label(cache));
    }
}

// A whole file through the cache of the cpu back end, in order, against pread of the same pieces;
// and brought in by prefetch.

void sequential_on_cpu(context& here) {
    // The runtime is new each time, so the time has the page faults of its frames in it; pread
    // reuses its buffers.
    constexpr const char* first_touch = "the frames are memory that is touched for the first time";
    const std::uint64_t bytes = here.use_file(here.file_bytes(256 * mib)),
                        threads = here.host_threads();
    for (const std::uint64_t page : here.pages({64 * kib})) {
        const runtime_shape shape{.page_bytes = page,
                                  .cache_bytes = bytes + bytes / 8 + 16 * page,
                                  .worker_threads = threads};
        const pattern pieces = make_pattern(here, mib, threads, bytes, true);
        measured reads, prefetch, again;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
            reads.add(run_reads(here.open(shape), pieces));
            {
                const opened_file file = here.open(shape);
                add_prefetch(file, prefetch);
                add_prefetch(file, again);
            }
            reads.baseline.add(run_preads(here.file().path(), pieces).rate);
        }
        prefetch.baseline = reads.baseline;
        const std::string count = groups_label(here, threads),
                          baseline = "pread of the same pieces of 1 MiB, " + count;
        here.add("S6", "whole file, by requests", page, "GB/s", reads, baseline,
                 "pieces of 1 MiB, " + count + "; " + first_touch);
        here.add("S6", "whole file, prefetch by one thread", page, "GB/s", prefetch, baseline,
                 first_touch);
        here.add("S6", "whole file, in the cache already: look-ups only", page, "GB/s",
                 {again.ours, prefetch.ours}, "the same when it had to be loaded",
                 "no byte is copied");
    }
}

}  // namespace penstock::bench
