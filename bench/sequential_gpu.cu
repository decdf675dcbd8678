// A whole file into the cache of a GPU: through windows and by requests, against what a programmer
// would write by hand, and what the copy engine gives.
#include "cases.hpp"
#include "pipeline_by_hand.cuh"
#include "workload.hpp"

namespace penstock::bench {

namespace {

constexpr const char* pipeline_name =
    "all cores: pread into pinned buffers, two a core, and cudaMemcpyAsync";

struct one_way {
    series rate, cores;
    status prefetch(runtime& rt, int fd, std::uint64_t bytes) {
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
};

struct ways {
    one_way windows, requests, again;
    series with_opening, hand, hand_page, engine;
};

status measure_once(context& here, std::uint64_t page, by_hand& hand, ways& out) {
    const std::uint64_t bytes = here.file().bytes();
    const runtime_shape shape{
        .page_bytes = page, .cache_bytes = bytes + bytes / 8, .file_bytes = bytes};
    std::unique_ptr<runtime> rt;
    int fd = -1;
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    const stopwatch watch;
    if (status s = open_all_windows(here, *rt, fd, bytes); !s) return s;
    if (status s = out.windows.prefetch(*rt, fd, bytes); !s) return s;
    out.with_opening.add(gigabytes_a_second(bytes, watch.seconds()));
    if (status s = out.again.prefetch(*rt, fd, bytes); !s) return s;
    rt->close_windows();
    if (status s = here.make_runtime(shape, rt, fd); !s) return s;
    if (status s = out.requests.prefetch(*rt, fd, bytes); !s) return s;
    rt.reset();
    if (status s = hand.run(piece_bytes, out.hand); !s) return s;
    if (here.asked().sweep)
        if (status s = hand.run(page, out.hand_page); !s) return s;
    if (status s = hand.copy_engine(engine_piece_bytes, out.engine); !s) return s;
    return {};
}

// One thread reads the file as a whole and copies it as a whole: what GPU programs often do.
status in_one_piece(const context& here, by_hand& hand, series& rate) {
    const std::uint64_t bytes = here.file().bytes();
    gpu_memory whole;
    if (status s = whole.on_host(bytes); !s) return s;
    std::memset(whole.as<void>(), 1, bytes);
    const pipeline one{
        hand.file, bytes,      bytes, 1, whole.as<std::byte>(), hand.device.as<std::byte>(),
        hand.on,   hand.number};
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
        if (status s = one.run(rate); !s) return s;
    return {};
}

status add_rows(context& here, std::uint64_t page, const ways& all) {
    const auto add = [&](const char* name, const series& value, const series& cores,
                         const char* note) {
        return here.add(
            {"S6", name, "", page, value, "GB/s", pipeline_name, all.hand, cores, note});
    };
    if (status s = add("whole file, windows open", all.windows.rate, all.windows.cores, ""); !s)
        return s;
    if (status s = add("whole file, windows opened first, in the time", all.with_opening, series(1),
                       "one thread registers");
        !s)
        return s;
    if (status s = add("whole file, by requests", all.requests.rate, all.requests.cores, ""); !s)
        return s;
    return here.add({"S6", "whole file, in the cache already: look-ups only", "", page,
                     all.again.rate, "GB/s", "the same when it had to be loaded, windows open",
                     all.windows.rate, all.again.cores, "no byte is copied"});
}

}  // namespace

status sequential_on_gpu(context& here) {
    const std::uint64_t bytes = here.file_bytes(8 * gib);
    if (status s = here.use_file(bytes); !s) return s;
    by_hand hand;
    if (status s = hand.make(here); !s) return s;
    ways last;
    for (const std::uint64_t page : here.pages({64 * kib})) {
        ways all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            if (status s = measure_once(here, page, hand, all); !s) return s;
        if (status s = add_rows(here, page, all); !s) return s;
        if (here.asked().sweep)
            if (status s = here.add({"S6",
                                     "no Penstock: pipeline by hand, pieces of a page",
                                     "",
                                     page,
                                     all.hand_page,
                                     "GB/s",
                                     pipeline_name,
                                     all.hand,
                                     {},
                                     ""});
                !s)
                return s;
        last = all;
    }
    if (status s = here.add({"S6",
                             "no Penstock: pipeline by hand, pieces of 4 MiB",
                             "",
                             0,
                             last.hand,
                             "GB/s",
                             "the copy engine, pieces of 64 MiB",
                             last.engine,
                             {},
                             ""});
        !s)
        return s;
    if (!here.asked().sweep) return {};
    series whole;
    if (status s = in_one_piece(here, hand, whole); !s) return s;
    return here.add({"S6",
                     "no Penstock: the file in one piece",
                     "",
                     0,
                     whole,
                     "GB/s",
                     pipeline_name,
                     last.hand,
                     {},
                     ""});
}

}  // namespace penstock::bench
