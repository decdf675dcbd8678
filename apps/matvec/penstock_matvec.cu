// One kernel that reads the matrix as it goes and writes the result, through Penstock.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "common/command_line.hpp"
#include "common/kernel_files.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "penstock/launch.hpp"
#include "penstock/write.hpp"
#include "sum_items.hpp"
#if defined(__CUDACC__)
#include "common/resident_blocks.cuh"
#endif

namespace penstock::matvec {

namespace {

constexpr std::uint64_t vector_piece_bytes = 64u << 10;
constexpr std::uint64_t pages_ahead = 4;

// A piece of the vector by each group, into memory of the device.
struct read_vector {
    matvec_view view;
    float* to;
    int fd;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t piece) const {
        const std::uint64_t first = piece * vector_piece_bytes,
                            bytes =
                                lesser(vector_piece_bytes, view.columns * sizeof(float) - first);
        const std::int64_t got =
            read(g, fs, fd, reinterpret_cast<char*>(to) + first, static_cast<std::int64_t>(bytes),
                 static_cast<std::int64_t>(first));
        if (got != static_cast<std::int64_t>(bytes) && g.is_leader())
            note_error(view, bad_file::vector, got < 0 ? got : -ESTALE);
    }
};

// Numbers of the matrix through the page cache: each page pinned while it is added.
struct page_source {
    struct piece {
        const float* data;
        std::int64_t count;
        mapping page;
    };
    const runtime_ref& fs;
    int fd;

    // Four pages of an item are loaded together. What cannot be had is met again by take, which
    // says so.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE void expect(const Group& g, std::uint64_t first,
                                            std::uint64_t count) const {
        const std::uint64_t ahead = pages_ahead * fs.view.page_bytes(),
                            byte = first * sizeof(float);
        prefetch(g, fs, fd, static_cast<std::int64_t>(byte),
                 static_cast<std::int64_t>(lesser(count * sizeof(float), ahead - byte % ahead)));
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE piece take(const Group& g, std::uint64_t first,
                                           std::uint64_t count) const {
        if (first * sizeof(float) % (pages_ahead * fs.view.page_bytes()) == 0)
            expect(g, first, count);
        const mapping page = map(g, fs, fd, static_cast<std::int64_t>(first * sizeof(float)),
                                 static_cast<std::int64_t>(count * sizeof(float)));
        const auto size = static_cast<std::int64_t>(sizeof(float));
        // A part of a number, or nothing: the file is shorter than it was.
        return {reinterpret_cast<const float*>(page.data),
                page.bytes < 0      ? page.bytes
                : page.bytes < size ? -ESTALE
                                    : page.bytes / size,
                page};
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE void give_back(const Group& g, const piece& what) const {
        unmap(g, fs, what.page);
    }
};

// All items, by every group until none is left.
struct multiply {
    matvec_view view;
    int matrix, result;

    template <typename Group>
    PENSTOCK_HD void work(const Group& g, const runtime_ref& fs) const {
        const auto write_rows = [&](const stretch& rows) -> std::int64_t {
            const auto bytes = static_cast<std::int64_t>(rows.count() * sizeof(float));
            const std::int64_t done = write(g, fs, result, view.y + rows.begin, bytes,
                                            static_cast<std::int64_t>(rows.begin * sizeof(float)));
            return done == bytes ? 0 : done < 0 ? done : -EIO;
        };
        sum_items(g, page_source{fs, matrix}, view, apps::user_interrupt{fs}, write_rows);
    }

    template <typename Group>
    PENSTOCK_HD void operator()([[maybe_unused]] const Group& g,
                                [[maybe_unused]] const runtime_ref& fs, std::uint64_t) const {
#if PENSTOCK_ON_DEVICE
        if constexpr (std::is_same_v<Group, warp>) work(g, fs);
#else
        if constexpr (std::is_same_v<Group, lane>) work(g, fs);
#endif
    }
};

// How many groups the kernel has. The pages that all of them have under way take no more than a
// quarter of the frames, so that none is dropped before it is used.
std::uint64_t group_count([[maybe_unused]] const runtime& rt, std::uint32_t threads) {
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        const std::uint32_t block_threads = launch_shape{}.threads_per_block;
        const std::uint64_t warps =
            apps::resident_blocks(rt.settings().device,
                                  penstock::detail::run_groups<width::warp, multiply>,
                                  block_threads) *
            (block_threads / 32);
        return std::clamp<std::uint64_t>(
            *rt.settings().cache_bytes / rt.settings().page_bytes / (4 * pages_ahead), 1, warps);
    }
#endif
    return threads;
}

struct product {
    runtime& rt;
    matvec_memory& memory;
    int matrix = -1, vector = -1;
    std::uint64_t groups = 1;

    // Launches that do nothing, so that the kernels and their stacks are on the device before the
    // clock runs.
    int rehearse() {
        matvec_view none = memory.view();
        none.rows = 0;
        const int code = launch<width::warp>(rt, 0, read_vector{none, memory.x(), vector});
        return code != 0 ? code : launch<width::warp>(rt, groups, multiply{none, matrix, -1});
    }
    // From the files of matrix and vector to the result in its own, where other programs see it.
    status run(const matvec_job& job) {
        if (status s = memory.reset(); !s) return s;
        int result = -1;
        if (status s = apps::open_result(rt, *job.result, result); !s) return s;
        const matvec_view& view = memory.view();
        int code =
            launch<width::warp>(rt, pieces_of(view.columns * sizeof(float), vector_piece_bytes),
                                read_vector{view, memory.x(), vector});
        if (code == 0) code = launch<width::warp>(rt, groups, multiply{view, matrix, result});
        return apps::close_result(rt, result,
                                  code != 0 ? apps::launch_error(rt, code) : memory.outcome(job));
    }
};

}  // namespace

status multiply_with_penstock(const matvec_job& job, method_report& report,
                              std::vector<std::string>& notes) {
    apps::stopwatch watch;
    options settings = job.settings;
    settings.writable = true;
    if (status s = apps::create_runtime(settings, notes, report.rt); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(settings.worker_threads);
    report.backend = on_gpu ? "gpu" : "cpu";
    matvec_memory memory(on_gpu ? apps::make_gpu_memory(rt.settings().device)
                                : apps::make_host_memory());
    product all{rt, memory};
    if (status s = apps::open_input(rt, job.matrix, all.matrix); !s) return s;
    if (status s = apps::open_input(rt, job.vector, all.vector); !s) return s;
    if (status s = memory.place(job); !s) return s;
    if (status s = memory.reset(); !s) return s;
    all.groups = group_count(rt, threads);
    report.note = on_gpu ? std::to_string(all.groups) + " warps"
                         : std::to_string(threads) + " threads, " + chosen_products().name;
    if (const int code = all.rehearse(); code != 0) return apps::launch_error(rt, code);
    report.start_seconds = watch.lap();
    if (on_gpu && job.windows)
        report.window_bytes = apps::open_windows(rt, {all.matrix, all.vector});
    report.window_seconds = watch.lap();

    return apps::repeat_timed(job.repeats, rt, report, [&] { return all.run(job); });
}

}  // namespace penstock::matvec
