// A matrix times a vector: one kernel that reads the matrix as it goes and writes the result,
// through Penstock.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "common/command_line.hpp"
#include "common/device_memory.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "penstock/launch.hpp"
#include "penstock/write.hpp"
#include "vector_sums.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::matrix {

namespace {

constexpr std::uint64_t vector_piece_bytes = 64u << 10;
constexpr std::uint64_t pages_ahead = 4;

// A piece of the vector by each group, into memory of the device.
struct read_vector {
    vector_view view;
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
            note_error(view, bad_file::b, got < 0 ? got : -ESTALE);
    }
};

// Numbers of the matrix through the page cache: each page pinned while it is added.
struct page_numbers {
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
    PENSTOCK_HD PENSTOCK_INLINE void give_back(const Group& g, const piece& taken) const {
        unmap(g, fs, taken.page);
    }
};

// All items, by every group until none is left.
struct multiply_items {
    vector_view view;
    int matrix, result;

    template <typename Group>
    PENSTOCK_HD void work(const Group& g, const runtime_ref& fs) const {
        const auto write_rows = [&](const stretch& rows) -> std::int64_t {
            const auto bytes = static_cast<std::int64_t>(rows.count() * sizeof(float));
            const std::int64_t done = write(g, fs, result, view.y + rows.begin, bytes,
                                            static_cast<std::int64_t>(rows.begin * sizeof(float)));
            return done == bytes ? 0 : done < 0 ? done : -EIO;
        };
        sum_items(g, page_numbers{fs, matrix}, view, apps::user_interrupt{fs}, write_rows);
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
std::uint64_t warp_count([[maybe_unused]] const runtime& rt, std::uint32_t threads) {
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        const std::uint32_t block_threads = launch_shape{}.threads_per_block;
        const std::uint64_t warps =
            apps::resident_blocks(rt.settings().device,
                                  penstock::detail::run_groups<width::warp, multiply_items>,
                                  block_threads) *
            (block_threads / 32);
        return std::clamp<std::uint64_t>(
            *rt.settings().cache_bytes / rt.settings().page_bytes / (4 * pages_ahead), 1, warps);
    }
#endif
    return threads;
}

// What is in the memory of the device that computes: the vector, the sums and the result.
class vector_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit vector_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    status place(const matrix_job& job) {
        view_ = {};
        view_.rows = job.size.m;
        view_.columns = job.size.k;
        view_.segments = pieces_of(view_.columns, segment_columns);
        view_.item_rows = rows_of_item(view_.columns);
        view_.add_products = chosen_kernels().add_products;
        const bool whole = view_.segments == 1;
        if (memory_ != nullptr && memory_->allocate(x_, view_.columns) &&
            memory_->allocate(view_.sums, view_.rows * view_.segments) &&
            (whole || memory_->allocate(view_.y, view_.rows)) &&
            memory_->allocate(view_.ended, view_.band_count()) &&
            memory_->allocate(view_.totals, 1)) {
            view_.x = x_;
            if (whole) view_.y = view_.sums;
            return {};
        }
        return {-ENOMEM,
                "the vector and the sums of " + apps::with_commas(view_.rows) + " rows need " +
                    format_size((view_.columns + view_.rows * (view_.segments + (whole ? 0 : 1))) *
                                sizeof(float)) +
                    " of memory that is not free; use a smaller --cache, or multiply fewer rows at "
                    "a time"};
    }
    // Before each product, so that one may follow another.
    status reset() {
        const apps::work_totals zero{};
        return memory_->upload(view_.totals, &zero, sizeof zero) ? status{} : copy_failed();
    }
    // What went wrong in the product, with a message that names the file.
    status outcome(const matrix_job& job) { return outcome_of(*memory_, view_.totals, job); }
    [[nodiscard]] const vector_view& view() const { return view_; }
    [[nodiscard]] float* x() const { return x_; }

private:
    std::unique_ptr<apps::device_memory> memory_;
    vector_view view_{};
    float* x_ = nullptr;
};

struct vector_product {
    runtime& rt;
    vector_memory& memory;
    int matrix = -1, vector = -1;
    std::uint64_t groups = 1;

    int rehearse() {
        vector_view none = memory.view();
        none.rows = 0;
        const int code = launch<width::warp>(rt, 0, read_vector{none, memory.x(), vector});
        return code != 0 ? code : launch<width::warp>(rt, groups, multiply_items{none, matrix, -1});
    }
    int launch_for(int result) {
        const vector_view& view = memory.view();
        const int code =
            launch<width::warp>(rt, pieces_of(view.columns * sizeof(float), vector_piece_bytes),
                                read_vector{view, memory.x(), vector});
        return code != 0 ? code
                         : launch<width::warp>(rt, groups, multiply_items{view, matrix, result});
    }
};

}  // namespace

status multiply_vector(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    vector_memory memory(on_gpu ? apps::make_gpu_memory(rt.settings().device)
                                : apps::make_host_memory());
    vector_product all{rt, memory};
    if (status s = apps::open_input(rt, job.a, all.matrix); !s) return s;
    if (status s = apps::open_input(rt, job.b, all.vector); !s) return s;
    if (status s = memory.place(job); !s) return s;
    if (status s = memory.reset(); !s) return s;
    all.groups = warp_count(rt, threads);
    report.note = on_gpu ? std::to_string(all.groups) + " warps"
                         : std::to_string(threads) + " threads, " + chosen_kernels().name;
    return repeat_product(job, all, {all.matrix, all.vector}, watch, report);
}

}  // namespace penstock::matrix
