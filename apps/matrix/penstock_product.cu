// A matrix times a matrix: one kernel that reads tiles of both and writes those of the result,
// through Penstock.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "cached_rows.hpp"
#include "common/command_line.hpp"
#include "common/device_memory.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "lane_multiply.hpp"
#include "methods.hpp"
#include "penstock/launch.hpp"
#include "penstock/write.hpp"
#if defined(__CUDACC__)
#include "block_multiply.cuh"
#include "common/gpu.cuh"
#endif

namespace penstock::matrix {

namespace {

// All tiles, by every group until none is left.
struct multiply_tiles {
    product_view view;
    int a, b, result;
    float* const* rooms;   // of CPU threads
    float* copies;         // of thread blocks that pin no pages
    std::uint64_t* ended;  // of each row of tiles: tiles that were written

    // Whole group: a part of a row of the result.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE std::int64_t write_row(const Group& g, const runtime_ref& fs,
                                                       std::uint64_t row, std::uint64_t column,
                                                       std::uint32_t columns,
                                                       const float* from) const {
        const auto bytes = static_cast<std::int64_t>(columns * sizeof(float));
        const std::int64_t done =
            write(g, fs, result, from, bytes,
                  static_cast<std::int64_t>((row * view.n + column) * sizeof(float)));
        return done == bytes ? 0 : done < 0 ? done : -EIO;
    }

    // Whole group, which wrote a tile. True if that was the last of its row of tiles, and the row
    // should go to the file now, while others compute; of less than a page others may write parts
    // at the same time, and all are left to the close.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE bool ends_row(const Group& g, const runtime_ref& fs,
                                              const tile_place& at, tile_shape shape) const {
        return apps::ends_last(g, &ended[at.row / shape.rows], pieces_of(view.n, shape.columns)) &&
               at.rows * view.n * sizeof(float) >= fs.view.page_bytes();
    }
    // Whole group: rows of the result to the file. What cannot be written stays in the cache; the
    // close tries again and says what it was.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE void bring_home(const Group& g, const runtime_ref& fs,
                                                std::uint64_t row, std::uint64_t rows) const {
        const std::uint64_t row_bytes = view.n * sizeof(float);
        msync(g, fs, result, static_cast<std::int64_t>(row * row_bytes),
              static_cast<std::int64_t>(rows * row_bytes));
    }

#if defined(__CUDACC__)
    // Whole block: the tile by way of shared memory, half of its rows at a time.
    PENSTOCK_D PENSTOCK_INLINE void write_tile(const block& g, const runtime_ref& fs,
                                               const tile_place& at, const float* totals) const {
        float* const rows = shared_state().rows();
        g.sync();  // no thread multiplies any more
        constexpr std::uint32_t half = block_tile.rows / 2;
        for (std::uint32_t first = 0; first < at.rows; first += half) {
            for (std::uint32_t i = 0; i < 32; ++i)
                rows[place_of_sum(thread_down(), i / 8) * block_tile.columns +
                     place_of_sum(thread_across(), i % 8)] = totals[first / half * 32 + i];
            g.sync();  // all of the half is there
            const std::uint32_t end = lesser(half, at.rows - first);
            for (std::uint32_t row = threadIdx.x / 32; row < end; row += block_warps) {
                const std::int64_t code =
                    write_row(this_warp(), fs, at.row + first + row, at.column, at.columns,
                              rows + row * block_tile.columns);
                if (code != 0 && threadIdx.x % 32 == 0) note_error(view, bad_file::result, code);
            }
            g.sync();  // all of it was taken
        }
        if (!ends_row(g, fs, at, block_tile)) return;
        constexpr std::uint32_t of_warp = block_tile.rows / block_warps;
        const std::uint32_t first = lesser(threadIdx.x / 32 * of_warp, at.rows);
        bring_home(this_warp(), fs, at.row + first, lesser(of_warp, at.rows - first));
    }
#endif

    template <typename Group>
    PENSTOCK_HD void operator()([[maybe_unused]] const Group& g,
                                [[maybe_unused]] const runtime_ref& fs,
                                [[maybe_unused]] std::uint64_t index) const {
#if PENSTOCK_ON_DEVICE
        if constexpr (std::is_same_v<Group, block>) {
            const cached_matrices matrices{fs, view, a, b};
            multiply_tiles_on_block(
                g,
                page_rows(matrices,
                          copies == nullptr ? nullptr : copies + index * copied_slab_floats),
                view, apps::user_interrupt{fs},
                [&](const tile_place& at, const float* totals) { write_tile(g, fs, at, totals); });
        }
#else
        if constexpr (std::is_same_v<Group, lane>)
            multiply_tiles_on_lane(
                cached_matrices{fs, view, a, b}, view, *reinterpret_cast<lane_room*>(rooms[index]),
                apps::user_interrupt{fs},
                [&](const tile_place& at, const float* tile) -> std::int64_t {
                    for (std::uint32_t i = 0; i < at.rows; ++i)
                        if (const std::int64_t code =
                                write_row(g, fs, at.row + i, at.column, at.columns,
                                          tile + std::uint64_t{i} * at.columns);
                            code != 0)
                            return code;
                    if (ends_row(g, fs, at, lane_tile)) bring_home(g, fs, at.row, at.rows);
                    return 0;
                });
#endif
    }
};

// How many groups the kernel has.
struct group_plan {
    std::uint64_t groups;
    bool pins = false;  // thread blocks pin the pages that they read
};

group_plan plan_groups([[maybe_unused]] const runtime& rt,
                       [[maybe_unused]] const product_view& view, std::uint32_t threads) {
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        const std::uint64_t room = apps::resident_blocks(
            rt.settings().device, penstock::detail::run_groups<width::block, multiply_tiles>,
            block_threads);
        const std::uint64_t blocks = std::min(room, view.tile_count(block_tile));
        const std::uint64_t frames = *rt.settings().cache_bytes / rt.settings().page_bytes;
        // Pinned pages leave a quarter of the frames to those that are loaded and written. So no
        // block waits for a frame that a waiting block holds. Half of the blocks that have room
        // with pages in place are faster than all of them with copies.
        const std::uint64_t pinned = most_pages_pinned(view, rt.settings().page_bytes),
                            with_pins = pinned == 0 ? 0 : frames / 4 * 3 / pinned;
        if (with_pins > 0 && 2 * with_pins >= blocks) return {std::min(with_pins, blocks), true};
        // A block loads up to eight pages for each of its warps at a time, and writes to as many.
        return {std::clamp<std::uint64_t>(frames / (16 * block_warps), 1, blocks)};
    }
#endif
    return {threads};
}

// Few rows of tiles at a time, so that they go to the file one after the other while others are
// made, and little is left at the end; but where B has to be read anew each time, many.
std::uint64_t rows_together(const runtime& rt, const matrix_job& job) {
    return job.b.bytes <= *rt.settings().cache_bytes / 2 ? 4 : 16;
}

// What is in the memory of the device that computes.
class product_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit product_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    status place(const matrix_job& job) {
        view_ = {job.size.m, job.size.n, job.size.k, nullptr, nullptr};
        std::vector<std::uint64_t> numbers(std::max(view_.m, view_.k));
        std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
        if (memory_ != nullptr && memory_->place(view_.numbers, numbers) &&
            memory_->allocate(view_.totals, 1) && memory_->allocate(ended_, row_count()))
            return {};
        return {-ENOMEM, "numbers of rows need " +
                             format_size(numbers.size() * sizeof(std::uint64_t)) +
                             " of memory that is not free; use a smaller --cache"};
    }
    // For thread blocks that copy what they multiply.
    status allocate_copies(std::uint64_t floats, float*& out) {
        if (memory_->allocate(out, floats)) return {};
        return {-ENOMEM, "copies of parts of the matrices need " +
                             format_size(floats * sizeof(float)) +
                             " of memory that is not free; use a smaller --cache"};
    }
    // Before each product, so that one may follow another.
    status reset() {
        const apps::work_totals zero{};
        const std::vector<std::uint64_t> none(row_count());
        const bool done = memory_->upload(view_.totals, &zero, sizeof zero) &&
                          memory_->upload(ended_, none.data(), none.size() * sizeof none[0]);
        return done ? status{} : copy_failed();
    }
    // What went wrong in the product, with a message that names the file.
    status outcome(const matrix_job& job) { return outcome_of(*memory_, view_.totals, job); }
    [[nodiscard]] const product_view& view() const { return view_; }
    // How many rows of tiles are made at the same time.
    void make_together(std::uint64_t rows) { view_.together = rows; }
    // Of each row of tiles, however high they are: how many were written.
    [[nodiscard]] std::uint64_t* ended() const { return ended_; }

private:
    // Rows of tiles are never more.
    [[nodiscard]] std::uint64_t row_count() const { return pieces_of(view_.m, 64); }
    std::unique_ptr<apps::device_memory> memory_;
    product_view view_{};
    std::uint64_t* ended_ = nullptr;
};

struct tile_product {
    runtime& rt;
    product_memory& memory;
    float* const* rooms;
    float* copies = nullptr;
    int a = -1, b = -1;
    std::uint64_t groups = 1;

    int launch_on(const product_view& view, int result) {
        launch_shape shape;
        shape.blocks = static_cast<std::uint32_t>(groups);
        return launch<width::block>(
            rt, groups, multiply_tiles{view, a, b, result, rooms, copies, memory.ended()}, shape);
    }
    int rehearse() {
        product_view none = memory.view();
        none.m = 0;
        return launch_on(none, -1);
    }
    int launch_for(int result) { return launch_on(memory.view(), result); }
};

}  // namespace

status multiply_matrices(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    product_memory memory(on_gpu ? apps::make_gpu_memory(rt.settings().device)
                                 : apps::make_host_memory());
    apps::thread_scratch rooms;
    if (!on_gpu)
        if (status s = rooms.allocate(threads, sizeof(lane_room) / sizeof(float)); !s) return s;
    tile_product all{rt, memory, rooms.pointers()};
    if (status s = apps::open_input(rt, job.a, all.a); !s) return s;
    if (status s = apps::open_input(rt, job.b, all.b); !s) return s;
    if (status s = memory.place(job); !s) return s;
    if (status s = memory.reset(); !s) return s;
    memory.make_together(rows_together(rt, job));
    const group_plan plan = plan_groups(rt, memory.view(), threads);
    all.groups = plan.groups;
#if defined(__CUDACC__)
    if (on_gpu && !plan.pins)
        if (status s = memory.allocate_copies(plan.groups * copied_slab_floats, all.copies); !s)
            return s;
#endif
    report.note = on_gpu ? std::to_string(all.groups) + " thread blocks" +
                               (plan.pins ? "" : ", copies of slabs")
                         : std::to_string(threads) + " threads, " + chosen_kernels().name;
    return repeat_product(job, all, {all.a, all.b}, watch, report);
}

}  // namespace penstock::matrix
