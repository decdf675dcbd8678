// One kernel that finds the candidates and reads them, page by page, as it goes.
#include <algorithm>
#include <cerrno>

#include "methods.hpp"
#include "make_block.hpp"
#include "page_source.hpp"
#include "penstock/launch.hpp"
#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::collage {

namespace {

// Blocks one after the other, by a thread block or a CPU thread, until none is left. Each takes the
// next in the order when it is done with the last: dealt out beforehand, blocks far apart in the
// order would soon be under way together, and would drive each other's tiles out of the cache.
struct make_blocks {
    collage_view view;
    library_files files;
    std::uint32_t
        blocks;  // how many there are to make; 0: the launch is only to put the kernel in place

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        if (blocks == 0) return;
#if PENSTOCK_ON_DEVICE
        __shared__ state_of<Group> state;
#else
        state_of<Group> state;
#endif
        while (take_block(g, state)) make_block(g, page_source(fs, files), view, state);
    }

    // Whole group: the next block's number into the state; false if there is none left.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE bool take_block(const Group& g, state_of<Group>& s) const {
        if (g.is_leader()) {
            const std::uint32_t taken = atomic_fetch_add<order::relaxed>(&view.totals->taken, 1u);
            s.block = taken < blocks ? view.order[taken] : no_tile;
        }
        g.sync();
        return s.block != no_tile;
    }
};

status open_files(runtime& rt, const library& from, library_files& out) {
    const auto open_one = [&](const std::string& name, int& fd) -> status {
        fd = rt.open(from.file(name));
        if (fd >= 0) return {};
        return {fd, apps::shown(from.file(name)) + ": " + error_text(fd) +
                        "; name a library that can be read"};
    };
    if (status s = open_one(histograms_name, out.histograms); !s) return s;
    if (status s = open_one(tiles_name, out.tiles); !s) return s;
    for (std::uint32_t t = 0; t < tables; ++t)
        if (status s = open_one(table_name(t), out.table[t]); !s) return s;
    out.entries_at = entries_at(from.header.slots);
    return {};
}

// Windows let the GPU fetch pages without a request. What has none, for want of budget or because
// the driver refuses, comes by request as ever.
void open_windows(runtime& rt, const library_files& files, std::uint64_t& window_bytes) {
    window_bytes = 0;
    const auto open_one = [&](int fd) {
        const std::int64_t got = rt.open_windows(fd);
        if (got > 0) window_bytes += static_cast<std::uint64_t>(got);
        return got != -EOPNOTSUPP;
    };
    if (!open_one(files.histograms)) return;
    for (const int fd : files.table) open_one(fd);
    open_one(files.tiles);
}

// Warps hold one page each, and half the frames are left for pages that are being loaded. A small
// picture has fewer blocks than fit; larger thread blocks then keep the GPU busy.
launch_shape shape_for(const runtime& rt, [[maybe_unused]] std::uint64_t blocks) {
    launch_shape shape;
#if defined(__CUDACC__)
    if (rt.where() != backend::gpu) return shape;
    int multiprocessors = 1;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rt.settings().device);
    shape.threads_per_block =
        blocks <= std::uint64_t{2} * static_cast<std::uint64_t>(multiprocessors) ? 512 : 256;
    const std::uint64_t frames = *rt.settings().cache_bytes / rt.settings().page_bytes;
    const std::uint64_t warps = shape.threads_per_block / 32;
    const std::uint64_t most = apps::resident_blocks(
        rt.settings().device, penstock::detail::run_groups<width::block, make_blocks>,
        shape.threads_per_block);
    shape.blocks =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(frames / 2 / warps, 1, most));
#else
    static_cast<void>(rt);
#endif
    return shape;
}

}  // namespace

status make_with_penstock(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    report.note = on_gpu ? "one kernel"
                         : std::string("one kernel on CPU threads, vectors of ") + vector_name();
    make_blocks function{};
    if (status s = open_files(rt, job.from, function.files); !s) return s;
    collage_memory memory(on_gpu ? rt.settings().device : collage_memory::no_gpu);
    if (status s = place_collage(memory, on_gpu, job.from.header, job.in, out, function.view); !s)
        return s;
    report.blocks = function.view.blocks();
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    const launch_shape shape = shape_for(rt, report.blocks);
    const std::uint64_t groups =
        on_gpu ? std::min<std::uint64_t>(shape.blocks, report.blocks) : threads;
    // A launch that makes no block, so that the kernel and its stack are on the device before the
    // clock runs.
    if (const int code = penstock::launch<width::block>(rt, groups, function, shape); code != 0)
        return apps::launch_error(rt, code);
    function.blocks = static_cast<std::uint32_t>(report.blocks);
    report.start_seconds = watch.lap();
    if (on_gpu) open_windows(rt, function.files, report.window_bytes);
    report.window_seconds = watch.lap();

    const statistics before = rt.stats();
    const double cpu_before = apps::cpu_seconds();
    watch.lap();
    std::vector<std::uint32_t> order;
    if (status s = prepare_input(memory, job.in, function.view, threads, order, report); !s)
        return s;
    apps::stopwatch part;
    const int code = penstock::launch<width::block>(rt, groups, function, shape);
    report.compute_seconds = part.lap();
    collage_totals totals{};
    status copied;
    if (code == 0) copied = download_result(memory, function.view, out, totals);
    report.download_seconds = part.lap();
    report.seconds = {watch.lap()};
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    if (code == 0 && copied.ok())
        copied = count_seen(memory, job.from.header, function.view, report.unique_tiles);
    report.evaluations = totals.evaluations;
    report.fallback_blocks = totals.fallback_blocks;
    report.pages_read = rt.stats().misses - before.misses;
    if (status s = apps::not_interrupted(); !s) return s;
    if (code != 0) return apps::launch_error(rt, code);
    return totals.code != 0 ? block_error(job.from, totals.code) : copied;
}

}  // namespace penstock::collage
