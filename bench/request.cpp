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

    [[nodiscard]] opened_file open() const {
        return here.open({.page_bytes = page,
                          .cache_bytes = cache,
                          .file_bytes = file_bytes,
                          .service_threads = service_threads,
                          .worker_threads = here.asked().threads});
    }
};

std::string served_by(const runtime& rt) {
    return counted(*rt.settings().service_threads, "service thread");
}

void throughput(const request_run& run, caller kind) {
    context& here = run.here;
    const opened_file file = run.open();
    const std::uint64_t total = std::min(run.file_bytes, (here.on_gpu() ? 1024 : 128) * mib),
                        warps = group_count(here, *file.rt, run.page),
                        groups =
                            kind == caller::warps ? warps : std::max<std::uint64_t>(warps / 8, 1);
    pattern ours = make_pattern(run.file_bytes, run.page, groups, total);
    pattern theirs = make_pattern(run.file_bytes, run.page, here.host_threads(), total);
    measured loads;
    series batch;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        ours.seed = theirs.seed = repeat;
        const run_result got = run_reads(file, ours, kind);
        if (repeat == 0) continue;  // the first fills the cache
        loads.ours.add(1e-9 * got.loaded_bytes / got.seconds);
        loads.cores.add(got.cores);
        if (got.batch_requests > 0)
            batch.add(got.batch_requests * static_cast<double>(run.page) / 1024);
        loads.baseline.add(run_preads(here.file().path(), theirs).rate);
    }
    const std::string by = here.on_gpu() ? (kind == caller::warps ? "warps" : "blocks") : "threads",
                      name = "requests of random pages by " + by + ", " + served_by(*file.rt) +
                             ", " + cache_label(run.cache, run.file_bytes),
                      note = groups_label(here, groups, kind) + ", " + file.rt->io_name();
    here.add({"S8", name, run.page, "GB/s", loads,
              "pread of the same into one buffer a thread, " + std::to_string(here.host_threads()) +
                  " threads",
              note});
    if (batch.size() == 0) return;
    const series one_page(static_cast<double>(run.page) / 1024);
    here.add({"S8",
              name + ", taken together",
              run.page,
              "KiB",
              {batch, one_page, {}},
              "one page at a time",
              note});
}

// Microseconds, so less is better; the ratio is turned round.
void round_trip(const request_run& run) {
    context& here = run.here;
    const opened_file file = run.open();
    const std::uint64_t rounds = std::min<std::uint64_t>(run.file_bytes / run.page, 4000);
    pattern reads = make_pattern(run.file_bytes, run.page, 1, rounds * run.page);
    measured trip;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        reads.seed = repeat;
        const run_result ours = run_reads(file, reads),
                         theirs = run_preads(here.file().path(), reads);
        if (repeat == 0) continue;  // the first loads the kernel
        trip.ours.add(1e6 * ours.seconds / (ours.loaded_bytes / static_cast<double>(run.page)));
        trip.cores.add(ours.cores);
        trip.baseline.add(1e6 * theirs.seconds / static_cast<double>(reads.rounds));
    }
    here.add({"S8", "round trip of one request by one group, " + served_by(*file.rt), run.page,
              "us", trip, "pread of one page by one thread",
              std::to_string(rounds) + " pages one after the other; " + file.rt->io_name()});
}

}  // namespace

void request_path(context& here) {
    const std::uint64_t file_bytes = here.file_bytes(8 * gib, 256 * mib);
    here.use_file(file_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        for (const std::uint64_t threads : here.service_threads()) {
            for (const std::uint64_t cache : here.caches(file_bytes, page))
                throughput({here, file_bytes, page, cache, threads}, caller::warps);
            if (here.asked().sweep && here.on_gpu())
                throughput({here, file_bytes, page, small_cache(file_bytes, page), threads},
                           caller::blocks);
        }
    const std::uint64_t page = here.pages({4 * kib}).front();
    round_trip({here, file_bytes, page, small_cache(file_bytes, page),
                here.asked().service_threads.empty() ? 0 : here.service_threads().front()});
}

}  // namespace penstock::bench
