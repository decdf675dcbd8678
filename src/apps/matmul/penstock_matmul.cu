// One kernel that reads tiles of both matrices and writes those of the result, through Penstock.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "common/command_line.hpp"
#include "common/kernel_files.hpp"
#include "common/stopwatch.hpp"
#include "common/thread_scratch.hpp"
#include "common/threads.hpp"
#include "lane_multiply.hpp"
#include "matmul_memory.hpp"
#include "methods.hpp"
#include "penstock/gather.hpp"
#include "penstock/launch.hpp"
#include "penstock/write.hpp"
#if defined(__CUDACC__)
#include "block_multiply.cuh"
#endif

namespace penstock::matmul {

namespace {

// Parts of the matrices through the page cache, as rows that are gathered: of what is there nothing is locked, and missing pages are
// loaded together.
struct cached_matrices {
    const runtime_ref& fs;
    const matmul_view& view;
    int a, b;

    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE std::int64_t fetch(const Group& g, bad_file which, std::uint64_t row, std::uint64_t rows, std::uint64_t column, std::uint64_t columns,
                                                   float* to) const {
        const std::uint64_t stride = which == bad_file::a ? view.k : view.n;
        const row_view from(fs, which == bad_file::a ? a : b, {columns * sizeof(float), stride * sizeof(float), column * sizeof(float)});
        const std::int64_t done = gather(g, from, view.numbers + row, rows, to);
        return done < 0 ? done : 0;
    }
};

// All tiles, by every group until none is left.
struct multiply {
    matmul_view view;
    int a, b, result;
    float* const* rooms;  // of CPU threads

    // Whole group: a part of a row of the result.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE std::int64_t write_row(const Group& g, const runtime_ref& fs, std::uint64_t row, std::uint64_t column, std::uint32_t columns,
                                                       const float* from) const {
        const auto bytes = static_cast<std::int64_t>(columns * sizeof(float));
        const std::int64_t done = write(g, fs, result, from, bytes, static_cast<std::int64_t>((row * view.n + column) * sizeof(float)));
        return done == bytes ? 0 : done < 0 ? done : -EIO;
    }

#if defined(__CUDACC__)
    // Whole block: the tile by way of shared memory, half of its rows at a time.
    PENSTOCK_D PENSTOCK_INLINE void write_tile(const block& g, const runtime_ref& fs, const tile_place& at, const float* totals) const {
        float* const rows = shared_state().rows();
        constexpr std::uint32_t half = block_tile.rows / 2;
        for (std::uint32_t first = 0; first < at.rows; first += half) {
            for (std::uint32_t i = 0; i < 32; ++i)
                rows[place_of_sum(threadIdx.x / 16, i / 8) * block_tile.columns + place_of_sum(threadIdx.x % 16, i % 8)] = totals[first / half * 32 + i];
            g.sync();  // all of the half is there
            const std::uint32_t end = lesser(half, at.rows - first);
            for (std::uint32_t row = threadIdx.x / 32; row < end; row += block_warps) {
                const std::int64_t code = write_row(this_warp(), fs, at.row + first + row, at.column, at.columns, rows + row * block_tile.columns);
                if (code != 0 && threadIdx.x % 32 == 0) note_error(view, bad_file::result, code);
            }
            g.sync();  // all of it was taken
        }
    }
#endif

    template <typename Group>
    PENSTOCK_HD void operator()([[maybe_unused]] const Group& g, [[maybe_unused]] const runtime_ref& fs, [[maybe_unused]] std::uint64_t index) const {
#if PENSTOCK_ON_DEVICE
        if constexpr (std::is_same_v<Group, block>)
            multiply_tiles_on_block(g, cached_matrices{fs, view, a, b}, view, apps::user_interrupt{fs},
                                    [&](const tile_place& at, const float* totals) { write_tile(g, fs, at, totals); });
#else
        if constexpr (std::is_same_v<Group, lane>)
            multiply_tiles_on_lane(cached_matrices{fs, view, a, b}, view, *reinterpret_cast<lane_room*>(rooms[index]), apps::user_interrupt{fs},
                                   [&](const tile_place& at, const float* tile) -> std::int64_t {
                                       for (std::uint32_t i = 0; i < at.rows; ++i)
                                           if (const std::int64_t code = write_row(g, fs, at.row + i, at.column, at.columns, tile + std::uint64_t{i} * at.columns); code != 0) return code;
                                       return 0;
                                   });
#endif
    }
};

// How many groups the kernel has. A block loads up to eight pages for each of its warps at a time, and writes to as many.
std::uint64_t group_count([[maybe_unused]] const runtime& rt, std::uint32_t threads) {
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        int multiprocessors = 1, resident = 1, current = 0;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rt.settings().device);
        cudaGetDevice(&current);
        cudaSetDevice(rt.settings().device);
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, penstock::detail::run_groups<width::block, multiply>, block_threads, 0);
        cudaSetDevice(current);
        const std::uint64_t blocks = static_cast<std::uint64_t>(multiprocessors) * static_cast<std::uint64_t>(std::max(resident, 1));
        return std::clamp<std::uint64_t>(rt.settings().cache_bytes / rt.settings().page_bytes / (16 * block_warps), 1, blocks);
    }
#endif
    return threads;
}

struct product {
    runtime& rt;
    matmul_memory& memory;
    float* const* rooms;
    int a = -1, b = -1;
    std::uint64_t groups = 1;

    int launch_on(const matmul_view& view, int result) {
        launch_shape shape;
        shape.blocks = static_cast<std::uint32_t>(groups);
        return launch<width::block>(rt, groups, multiply{view, a, b, result, rooms}, shape);
    }
    // A launch that does nothing, so that the kernel and its stack are on the device before the clock runs.
    int rehearse() {
        matmul_view none = memory.view();
        none.m = 0;
        return launch_on(none, -1);
    }
    // From the files of the matrices to the result in its own, where other programs see it.
    status run(const matmul_job& job) {
        if (status s = memory.reset(); !s) return s;
        int result = -1;
        if (status s = apps::open_result(rt, *job.result, result); !s) return s;
        const int code = launch_on(memory.view(), result);
        return apps::close_result(rt, result, code != 0 ? apps::launch_error(rt, code) : memory.outcome(job));
    }
};

}  // namespace

status multiply_with_penstock(const matmul_job& job, method_report& report, std::vector<std::string>& notes) {
    apps::stopwatch watch;
    options settings = job.settings;
    settings.writable = true;
    if (status s = apps::create_runtime(settings, notes, report.rt); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(settings.worker_threads);
    report.backend = on_gpu ? "gpu" : "cpu";
    matmul_memory memory(on_gpu ? apps::make_gpu_memory(rt.settings().device) : apps::make_host_memory());
    apps::thread_scratch rooms;
    if (!on_gpu)
        if (status s = rooms.allocate(threads, sizeof(lane_room) / sizeof(float)); !s) return s;
    product all{rt, memory, rooms.pointers()};
    if (status s = apps::open_input(rt, job.a, all.a); !s) return s;
    if (status s = apps::open_input(rt, job.b, all.b); !s) return s;
    if (status s = memory.place(job); !s) return s;
    if (status s = memory.reset(); !s) return s;
    all.groups = group_count(rt, threads);
    report.note = on_gpu ? std::to_string(all.groups) + " thread blocks" : std::to_string(threads) + " threads, " + chosen_tiles().name;
    if (const int code = all.rehearse(); code != 0) return apps::launch_error(rt, code);
    report.start_seconds = watch.lap();
    if (on_gpu && job.windows) report.window_bytes = apps::open_windows(rt, {all.a, all.b});
    report.window_seconds = watch.lap();

    const std::uint64_t misses_before = rt.stats().misses;
    const double cpu_before = apps::cpu_seconds();
    for (std::uint32_t i = 0; i < job.repeats; ++i) {
        watch.lap();
        if (status s = all.run(job); !s) return s;
        report.seconds.push_back(watch.lap());
    }
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    report.bytes_read = (rt.stats().misses - misses_before) * rt.settings().page_bytes;
    return {};
}

}  // namespace penstock::matmul
