// One kernel that finds the candidates and reads them, page by page, as it goes.
#include <algorithm>
#include <cerrno>
#include <type_traits>

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

// The library on one device.
struct library_files {
    int fds[file_count];       // in the order of library::files()
    std::uint64_t entries_at;  // byte of each table at which its entries begin
};

// The library through Penstock's page cache: a source for make_block.
class page_source {
public:
    static constexpr bool fills_buffers = true;

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

// Makes block number i of the order. So blocks that are under way on a device at a time are
// neighbours in it: blocks far apart would drive each other's tiles out of the cache. `Whole`: all
// warps of a thread block read a record together.
template <bool Whole>
struct make_blocks {
    collage_view views[most_runtime_devices];
    library_files files[most_runtime_devices];
    bool rehearsal;  // the launch is only to put the kernel in place

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        if (rehearsal) return;
        const collage_view& view = views[fs.device];
        const page_source source(fs, files[fs.device]);
#if PENSTOCK_ON_DEVICE
        if constexpr (Whole && std::is_same_v<Group, block>)
            make_one(whole_block{g}, source, view, i);
        else
#endif
            make_one(g, source, view, i);
    }
};

// The library on every device of the runtime. Closed with the runtime.
status open_files(runtime& rt, const library& from, std::vector<shared_file>& out,
                  library_files* files) {
    for (const library_file& file : from.files()) {
        const std::size_t place = out.size();
        out.push_back(rt.open_everywhere(file.path));
        if (const int code = out.back().code(); code != 0)
            return {code, apps::shown(file.path) + ": " + error_text(code) +
                              "; name a library that can be read"};
        for (std::uint32_t device = 0; device < rt.device_count(); ++device)
            files[device].fds[place] = out.back().of(device);
    }
    for (std::uint32_t device = 0; device < rt.device_count(); ++device)
        files[device].entries_at = entries_at(from.header.slots);
    return {};
}

// For each device. Warps hold one page each, and half the frames are left for pages that are being
// loaded.
template <typename Function>
launch_shape shape_for(const runtime& rt, std::uint64_t blocks) {
    launch_shape shape;
    shape.threads_per_block = threads_for(rt, blocks);
#if defined(__CUDACC__)
    if (rt.where() != backend::gpu) return shape;
    const std::uint64_t frames = *rt.settings().cache_bytes / rt.settings().page_bytes;
    const std::uint64_t warps = shape.threads_per_block / 32;
    const std::uint64_t most = apps::resident_blocks(
        rt.settings().device, penstock::detail::run_groups<width::block, Function>,
        shape.threads_per_block);
    // 0: as many as are resident.
    if (frames / 2 / warps < most)
        shape.blocks = static_cast<std::uint32_t>(std::max<std::uint64_t>(frames / 2 / warps, 1));
#endif
    return shape;
}

// All of the library into the caches of all devices.
status load_all(runtime& rt, const std::vector<shared_file>& files) {
    for (const shared_file& file : files)
        if (const std::int64_t code = rt.prefetch(file); code < 0)
            return {static_cast<int>(code), "the library cannot be brought into the cache: " +
                                                error_text(static_cast<int>(code)) +
                                                "; leave out --cached"};
    return {};
}

template <bool Whole>
status make_pages(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report, apps::device_use::several); !s)
        return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t devices = rt.device_count();
    report.note = on_gpu ? "one kernel"
                         : std::string("one kernel on CPU threads, vectors of ") + vector_name();
    if (devices > 1)
        report.note += (on_gpu ? " on each of " : ", ") + std::to_string(devices) +
                       (on_gpu ? " GPUs" : " caches");
    make_blocks<Whole> function{};
    std::vector<shared_file> files;
    if (status s = open_files(rt, job.from, files, function.files); !s) return s;
    collage_sides sides(devices);
    for (std::uint32_t i = 0; i < devices; ++i)
        sides[i].memory =
            on_gpu ? apps::make_gpu_memory(rt.settings(i).device) : apps::make_host_memory();
    if (status s = place_collage(job, on_gpu, out, sides); !s) return s;
    for (std::uint32_t i = 0; i < devices; ++i) function.views[i] = sides[i].view;
    report.blocks = sides.front().view.blocks();
    const launch_shape shape = shape_for<make_blocks<Whole>>(rt, report.blocks);
    // Launches that make no block, so that the kernel and its stack are on each device before the
    // clock runs.
    function.rehearsal = true;
    for (std::uint32_t i = 0; i < devices; ++i)
        if (const int code = launch_on<width::block>(rt, i, report.blocks, function, shape);
            code != 0)
            return apps::launch_error(rt, code);
    function.rehearsal = false;
    report.start_seconds = watch.lap();
    if (on_gpu && job.windows) report.window_bytes = apps::open_windows(rt, files);
    if (job.cached)
        if (status s = load_all(rt, files); !s) return s;
    report.window_seconds = watch.lap();

    const std::uint64_t misses_before = rt.stats().misses;
    const auto compute = [&](const std::vector<std::uint32_t>&) -> status {
        const int code = penstock::launch<width::block>(rt, report.blocks, function, shape);
        return code == 0 ? status{} : apps::launch_error(rt, code);
    };
    std::vector<collage_totals> totals;
    const auto fetch = [&] { return download_result(sides, out, totals); };
    if (status s = timed_collage(job, sides, report, compute, fetch); !s) return s;
    report.pages_read = rt.stats().misses - misses_before;
    return note_counts(job, sides, totals, report);
}

}  // namespace

std::uint32_t threads_for([[maybe_unused]] const runtime& rt,
                          [[maybe_unused]] std::uint64_t blocks) {
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        int multiprocessors = 1;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                               rt.settings().device);
        const std::uint64_t few = std::uint64_t{2} * static_cast<std::uint64_t>(multiprocessors);
        if (blocks <= few * rt.device_count()) return 512;
    }
#endif
    return launch_shape{}.threads_per_block;
}

status make_with_penstock(const collage_job& job, picture& out, method_report& report) {
#if defined(__CUDACC__)
    if (job.whole_blocks) return make_pages<true>(job, out, report);
#endif
    return make_pages<false>(job, out, report);
}

}  // namespace penstock::collage
