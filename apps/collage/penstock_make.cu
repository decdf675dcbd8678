// One kernel that finds the candidates and reads them, page by page, as it goes.
#include <algorithm>
#include <cerrno>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "penstock/file.hpp"
#include "penstock/launch.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::collage {

namespace {

struct library_files {
    int fds[file_count];       // in the order of library::files()
    std::uint64_t entries_at;  // byte of each table at which its entries begin
};

// The library through Penstock's page cache: a source for make_block.
class page_source {
public:
    PENSTOCK_HD page_source(const runtime_ref& fs, const library_files& files)
        : fs_(fs), files_(files) {}

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int slot(const Member& m, std::uint32_t table, std::uint32_t slot,
                                         table_entry* buffer, std::uint32_t& begin,
                                         std::uint32_t& end) const {
        // Two neighbouring numbers take as much room as one entry.
        const std::uint64_t at = table_head_bytes + std::uint64_t{slot} * sizeof(std::uint32_t);
        const std::int64_t got = read(m, fs_, files_.fds[tables_place + table], buffer,
                                      sizeof *buffer, static_cast<std::int64_t>(at));
        begin = buffer->fingerprint;
        end = buffer->id;
        m.sync();  // all have them before the buffer takes the entries
        return settled(got, sizeof *buffer);
    }

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int entries(const Member& m, std::uint32_t table,
                                            std::uint32_t first, std::uint32_t count,
                                            table_entry* buffer, const table_entry*& out) const {
        out = buffer;
        const std::uint32_t bytes = count * sizeof(table_entry);
        const std::uint64_t at = files_.entries_at + std::uint64_t{first} * sizeof(table_entry);
        return settled(read(m, fs_, files_.fds[tables_place + table], buffer, bytes,
                            static_cast<std::int64_t>(at)),
                       bytes);
    }

    template <typename Member, typename Visit>
    PENSTOCK_HD PENSTOCK_INLINE int record(const Member& m, std::uint32_t id,
                                           const Visit& visit) const {
        // One piece, unless the pages are smaller than a histogram.
        for (std::uint32_t done = 0; done < record_bytes;) {
            const auto at =
                static_cast<std::int64_t>(std::uint64_t{id} * record_stride_bytes + done);
            const mapping piece =
                map(m, fs_, files_.fds[histograms_place], at, record_bytes - done);
            if (piece.bytes <= 0) return piece.bytes < 0 ? static_cast<int>(piece.bytes) : -ESTALE;
            const auto bytes = static_cast<std::uint32_t>(piece.bytes);
            visit(reinterpret_cast<const std::uint32_t*>(piece.data), done / 4, bytes / 4);
            unmap(m, fs_, piece);
            done += bytes;
        }
        return 0;
    }

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int tile(const Member& m, std::uint32_t id, std::uint8_t* buffer,
                                         const std::uint8_t*& out) const {
        out = buffer;
        const std::int64_t at = static_cast<std::int64_t>(id) * tile_bytes;
        return settled(read(m, fs_, files_.fds[tiles_place], buffer, tile_bytes, at), tile_bytes);
    }

private:
    static PENSTOCK_HD int settled(std::int64_t got, std::uint32_t want) {
        if (got < 0) return static_cast<int>(got);
        return got == want ? 0 : -ESTALE;  // it was checked when it was opened, so it shrank
    }
    const runtime_ref& fs_;
    const library_files& files_;
};

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
    int* next = out.fds;
    for (const library_file& file : from.files()) {
        const int fd = *next++ = rt.open(file.path);
        if (fd < 0)
            return {fd, apps::shown(file.path) + ": " + error_text(fd) +
                            "; name a library that can be read"};
    }
    out.entries_at = entries_at(from.header.slots);
    return {};
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
    const auto memory =
        on_gpu ? apps::make_gpu_memory(rt.settings().device) : apps::make_host_memory();
    collage_view& view = function.view;
    if (status s = place_collage(*memory, on_gpu, job.from.header, job.in, out, view); !s) return s;
    report.blocks = view.blocks();
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
    const int(&fds)[file_count] = function.files.fds;
    if (on_gpu) report.window_bytes = apps::open_windows(rt, {std::begin(fds), std::end(fds)});
    report.window_seconds = watch.lap();

    const std::uint64_t misses_before = rt.stats().misses;
    const auto compute = [&](const std::vector<std::uint32_t>&) -> status {
        const int code = penstock::launch<width::block>(rt, groups, function, shape);
        return code == 0 ? status{} : apps::launch_error(rt, code);
    };
    collage_totals totals{};
    const auto fetch = [&] { return download_result(*memory, view, out, totals); };
    if (status s = timed_collage(job, *memory, view, report, compute, fetch); !s) return s;
    report.pages_read = rt.stats().misses - misses_before;
    return note_counts(job, *memory, view, totals, report);
}

}  // namespace penstock::collage
