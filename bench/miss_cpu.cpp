// Pages that are not cached, on the cpu back end: at random, and a whole file in order; and the
// records at random that both back ends read.
#include <algorithm>

#include "cases.hpp"
#include "workload.hpp"

namespace penstock::bench {

// Misses on the cpu back end: random pages of a file in the operating system's page cache, with a
// Penstock cache smaller than the file, against pread of the same pages.

namespace {

void random_pages(context& here, std::uint64_t file_bytes, std::uint64_t page,
                  std::uint64_t cache) {
    const std::uint64_t threads = here.host_threads();
    const opened_file file = here.open({.page_bytes = page,
                                        .cache_bytes = cache,
                                        .file_bytes = file_bytes,
                                        .worker_threads = threads});
    pattern order = make_pattern(file_bytes, page, threads, std::min(file_bytes, 256 * mib));
    measured loads;
    double share = 0;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        order.seed = repeat;
        const run_result got = run_reads(file, order);
        if (repeat == 0) continue;  // the first fills the cache
        loads.ours.add(1e-9 * got.loaded_bytes / got.seconds);
        loads.cores.add(got.cores);
        share = got.loaded_bytes / static_cast<double>(order.total_bytes());
        loads.baseline.add(run_preads(here.file().path(), order).rate);
    }
    here.add({page == 512 ? "S5" : "S4", "loads of random pages, " + cache_label(cache, file_bytes),
              page, "GB/s", loads,
              "pread of the same pages, " + std::to_string(threads) + " threads",
              text_of("%.3f million misses/s; %.3f of the pages missed in the last run",
                      1e3 * loads.ours.median() / static_cast<double>(page), share)});
}

struct record {
    const char* name;
    std::uint64_t bytes, step_bytes;
};

void one_record_size(context& here, std::uint64_t file_bytes, std::uint64_t page,
                     const record& kind) {
    measured records;
    series waste;
    std::uint64_t groups = 0;
    const std::uint64_t cache = small_cache(file_bytes, page),
                        total = std::min(file_bytes / 4, (here.on_gpu() ? 1024 : 64) * mib);
    const auto reads_by = [&](std::uint64_t readers, std::uint64_t seed) {
        pattern out = make_pattern(file_bytes, kind.bytes, readers, total, false, kind.step_bytes);
        out.seed = seed;
        return out;
    };
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        const opened_file file =
            here.open({.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes});
        open_all_windows(here, file, file_bytes);
        groups = group_count(here, *file.rt, kind.bytes);
        const pattern ours = reads_by(groups, repeat);
        const run_result got = run_reads(file, ours);
        records.ours.add(got.rate);
        records.cores.add(got.cores);
        waste.add(got.loaded_bytes / static_cast<double>(ours.total_bytes()));
        records.baseline.add(
            run_preads(here.file().path(), reads_by(here.host_threads(), repeat)).rate);
    }
    const std::string name = std::string("random ") + kind.name,
                      note = groups_label(here, groups) + "; " + cache_label(cache, file_bytes) +
                             " of " + format_size(file_bytes);
    here.add({"S4", name, page, "GB/s", records,
              "pread of the same into one buffer a thread, " + std::to_string(here.host_threads()) +
                  " threads",
              note + "; counted is what was asked for"});
    here.add({"S4",
              name + ", loaded",
              page,
              "bytes loaded per byte asked for",
              {waste, series(1), records.cores},
              "each byte once",
              note});
}

}  // namespace

void miss_on_cpu(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(256 * mib);
    here.use_file(file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 512, 64 * kib})) {
        for (const std::uint64_t cache : here.caches(file_bytes, page))
            random_pages(here, file_bytes, page, cache);
        random_records(here, file_bytes, page);
    }
    if (here.asked().sweep) fewer_shards(here, file_bytes, 4 * kib);
}

void random_records(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes) {
    one_record_size(here, file_bytes, page_bytes, {"records of 3 KiB", 3 * kib, 4 * kib});
    one_record_size(here, file_bytes, page_bytes, {"blocks of 32 KiB", 32 * kib, 512});
}

void fewer_shards(context& here, std::uint64_t file_bytes, std::uint64_t page) {
    const std::uint64_t cache = small_cache(file_bytes, page),
                        total = std::min(file_bytes, (here.on_gpu() ? 4096 : 64) * mib);
    std::vector<std::uint32_t> shards;
    std::vector<measured> runs;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        std::uint32_t count = 0;  // what the runtime chose, to begin with
        for (std::size_t i = 0; i == 0 || count >= 1; ++i) {
            const opened_file file =
                here.open({.page_bytes = page, .cache_bytes = cache, .file_bytes = file_bytes});
            open_all_windows(here, file, file_bytes);
            if (i == 0) count = file.rt->ref().view.clock_shards;
            if (repeat == 0) {
                shards.push_back(count);
                runs.emplace_back();
            }
            pattern reads =
                make_pattern(file_bytes, page, group_count(here, *file.rt, page), total);
            reads.seed = repeat;
            const run_result got = run_reads(file, reads, caller::warps, count);
            runs[i].ours.add(got.seconds);
            runs[i].cores.add(got.cores);
            count = count > 1 ? std::max(count / 4, 1u) : 0;  // one shard comes last
        }
    }
    for (std::size_t i = 0; i < shards.size(); ++i) {
        runs[i].baseline = runs[0].ours;
        here.add({"S4", "random pages, " + counted(shards[i], "clock shard"), page, "s", runs[i],
                  "the same with " + std::to_string(shards[0]),
                  format_size(total) + " read, " + cache_label(cache, file_bytes)});
    }
}

// A whole file through the cache of the cpu back end, in order, against pread of the same pieces;
// and brought in by prefetch.

void sequential_on_cpu(context& here) {
    // The runtime is new each time, so the time has the page faults of its frames in it; pread
    // reuses its buffers.
    constexpr const char* first_touch = "the frames are memory that is touched for the first time";
    const std::uint64_t bytes = here.file_bytes(256 * mib), threads = here.host_threads();
    here.use_file(bytes);
    for (const std::uint64_t page : here.pages({64 * kib})) {
        const runtime_shape shape{.page_bytes = page,
                                  .cache_bytes = bytes + bytes / 8 + 16 * page,
                                  .file_bytes = bytes,
                                  .worker_threads = threads};
        const pattern pieces = make_pattern(bytes, mib, threads, bytes, true);
        measured reads, prefetch, again;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
            opened_file file = here.open(shape);
            const run_result got = run_reads(file, pieces);
            reads.ours.add(got.rate);
            reads.cores.add(got.cores);
            file.rt.reset();
            file = here.open(shape);
            add_prefetch(file, bytes, prefetch);
            add_prefetch(file, bytes, again);
            file.rt.reset();
            reads.baseline.add(run_preads(here.file().path(), pieces).rate);
        }
        prefetch.baseline = reads.baseline;
        const std::string count = groups_label(here, threads),
                          baseline = "pread of the same pieces of 1 MiB, " + count;
        here.add({"S6", "whole file, by requests", page, "GB/s", reads, baseline,
                  "pieces of 1 MiB, " + count + "; " + first_touch});
        here.add({"S6", "whole file, prefetch by one thread", page, "GB/s", prefetch, baseline,
                  first_touch});
        here.add({"S6",
                  "whole file, in the cache already: look-ups only",
                  page,
                  "GB/s",
                  {again.ours, prefetch.ours, {}},
                  "the same when it had to be loaded",
                  "no byte is copied"});
    }
}

}  // namespace penstock::bench
