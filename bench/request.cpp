// Missing pages that the service threads read: from the operating system's page cache, and from
// storage.
#include "cases.hpp"

namespace penstock::bench {

// Requests: missing pages that the service threads read from the operating system's page cache,
// without windows; against pread of the same blocks from all processors. And the round trip of one
// request by one group, with no other group asking.

namespace {

opened_file open_to_request(context& here, std::uint64_t page, std::uint64_t cache,
                            std::uint64_t service_threads) {
    return here.open({.page_bytes = page,
                      .cache_bytes = cache,
                      .service_threads = service_threads,
                      .worker_threads = here.asked().threads});
}

std::string served_by(const opened_file& file) {
    return counted(*file.rt->settings().service_threads, "service thread");
}

// Of a runtime with the default number of threads: how many there may be.
std::string helpers_of(const opened_file& file) {
    const options& o = file.rt->settings();
    return *o.most_service_threads == *o.service_threads
               ? ""
               : "; with helpers up to " + std::to_string(*o.most_service_threads);
}

void throughput(context& here, std::uint64_t page, std::uint64_t cache,
                std::uint64_t service_threads, caller kind) {
    const opened_file file = open_to_request(here, page, cache, service_threads);
    const std::uint64_t total = std::min(here.bytes(), (here.on_gpu() ? 1024 : 128) * mib),
                        warps = group_count(here, *file.rt, page),
                        groups =
                            kind == caller::warps ? warps : std::max<std::uint64_t>(warps / 8, 1);
    pattern ours = make_pattern(here, page, groups, total),
            theirs = make_pattern(here, page, here.host_threads(), total);
    measured loads;
    series batch;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        ours.seed = theirs.seed = repeat;
        const run_result got = run_reads(file, ours, kind),
                         other = run_preads(here.file().path(), theirs);
        if (repeat == 0) continue;  // the first fills the cache
        loads.ours.add(1e-9 * got.loaded_bytes / got.seconds);
        loads.cores.add(got.cores);
        if (got.batch_requests > 0) batch.add(got.batch_requests * page / 1024);
        loads.baseline.add(other.rate);
    }
    const std::string by = here.on_gpu() ? (kind == caller::warps ? "warps" : "blocks") : "threads",
                      name = "requests of random pages by " + by + ", " + served_by(file) + ", " +
                             here.cache_label(cache),
                      note = groups_label(here, groups, kind) + ", " + file.rt->io_name() +
                             helpers_of(file);
    const char* const goal = service_threads == 0 ? "S8d" : "S8";
    here.add(goal, name, page, "GB/s", loads, pread_by_all(here), note);
    if (batch.size() != 0)
        here.add(goal, name + ", taken together", page, "KiB", {batch, series(page / 1024.0)},
                 "one page at a time", note);
}

// Microseconds, so less is better; the ratio is turned round.
void round_trip(context& here, std::uint64_t page, std::uint64_t service_threads) {
    const opened_file file = open_to_request(here, page, here.small_cache(page), service_threads);
    const std::uint64_t rounds = std::min<std::uint64_t>(here.bytes() / page, 4000);
    pattern reads = make_pattern(here, page, 1, rounds * page);
    measured trip;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        reads.seed = repeat;
        const run_result ours = run_reads(file, reads),
                         theirs = run_preads(here.file().path(), reads);
        if (repeat == 0) continue;  // the first loads the kernel
        trip.ours.add(1e6 * ours.seconds * page / ours.loaded_bytes);
        trip.cores.add(ours.cores);
        trip.baseline.add(1e6 * theirs.seconds / reads.rounds);
    }
    here.add("S8l", "round trip of one request by one group, " + served_by(file), page, "us", trip,
             "pread of one page by one thread",
             std::to_string(rounds) + " pages one after the other; " + file.rt->io_name());
}

}  // namespace

void request_path(context& here) {
    here.use_file(here.file_bytes(8 * gib, 256 * mib));
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        for (const std::uint64_t threads : here.service_threads()) {
            for (const std::uint64_t cache : here.caches(page))
                throughput(here, page, cache, threads, caller::warps);
            if (here.asked().sweep && here.on_gpu())
                throughput(here, page, here.small_cache(page), threads, caller::blocks);
        }
    round_trip(here, here.pages({4 * kib}).front(),
               here.asked().service_threads.empty() ? 0 : here.service_threads().front());
}

// A file that is not in the operating system's page cache: 4 KiB at random and 1 MiB in order,
// through Penstock from many groups, against the best of O_DIRECT and buffered pread from 64
// threads.

namespace {

struct cold_access {
    const char* name;
    std::uint64_t block_bytes;
    bool in_order;
    std::uint64_t most_bytes;  // of one run
};

struct cold_series {
    measured buffered;
    series direct;
    double left = 0;  // the largest share of the file that stayed in memory when it was dropped
    bool has_direct = true;
    std::uint64_t groups = 0;
};

void measure_cold(context& here, const runtime_shape& shape, const cold_access& access,
                  std::uint64_t repeat, cold_series& out) {
    // The file is dropped before each run.
    const auto reads_by = [&](std::uint64_t groups, std::uint64_t seed) {
        out.left = std::max(out.left, here.file().drop_from_page_cache());
        pattern reads = make_pattern(here, access.block_bytes, groups,
                                     std::min(here.bytes(), access.most_bytes), access.in_order);
        reads.seed = 3 * repeat + seed;
        return reads;
    };
    {
        const opened_file file = here.open(shape);
        out.groups = group_count(here, *file.rt, access.block_bytes);
        out.buffered.add(run_reads(file, reads_by(out.groups, 0)));
    }
    const std::string& path = here.file().path();
    try {
        if (out.has_direct)
            out.direct.add(run_preads(path, reads_by(here.threads(64), 1), true).rate);
    } catch (const failure& ended) {
        if (ended.code != -EINVAL) throw;
        out.has_direct = false;
    }
    out.buffered.baseline.add(run_preads(path, reads_by(here.threads(64), 2)).rate);
}

void one_access(context& here, std::uint64_t page, const cold_access& access) {
    for (const std::uint64_t cache : here.caches(page)) {
        runtime_shape shape{.page_bytes = page, .cache_bytes = cache};
        // A thread is one group there, and waits for the disk most of the time.
        if (!here.on_gpu()) shape.worker_threads = here.threads(64);
        cold_series all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat)
            measure_cold(here, shape, access, repeat, all);
        const std::string name =
            std::string("cold, ") + access.name + ", " + here.cache_label(cache);
        if (!here.is_cold(name, all.left)) continue;
        measured best = all.buffered;
        const bool direct_is_best = all.has_direct && all.direct.median() > best.baseline.median();
        const std::string other =
            !all.has_direct  ? "this file system has no O_DIRECT"
            : direct_is_best ? text_of("buffered pread: %.4g GB/s", best.baseline.median())
                             : text_of("pread with O_DIRECT: %.4g GB/s", all.direct.median());
        if (direct_is_best) best.baseline = all.direct;
        here.add("S7", name, page, "GB/s", best,
                 (direct_is_best ? "O_DIRECT pread, " : "buffered pread, ") +
                     std::to_string(here.threads(64)) + " threads, the better of the two",
                 groups_label(here, all.groups) + "; " + other +
                     text_of("; %.2f %% of the file stayed in the page cache when it was dropped",
                             100 * all.left));
    }
}

}  // namespace

void cold(context& here) {
    here.use_file(here.file_bytes(8 * gib, gib));
    if (!here.can_be_cold("cold")) return;
    for (const std::uint64_t page : here.pages({4 * kib}))
        one_access(here, page, {"4 KiB at random", 4 * kib, false, 256 * mib});
    for (const std::uint64_t page : here.pages({64 * kib, mib}))
        one_access(here, page, {"1 MiB in order", mib, true, 4 * gib});
}

}  // namespace penstock::bench
