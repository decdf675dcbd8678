// A matrix times a matrix: one kernel that reads tiles of both and writes those of the result,
// through Penstock.
#include <algorithm>
#include <cerrno>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cached_rows.hpp"
#include "common/threads.hpp"
#include "kernel_product.hpp"
#include "lane_multiply.hpp"
#include "penstock/launch.hpp"
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
        return write_numbers(g, fs, result, from, columns, row * view.n + column);
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
        msync(g, fs, result, byte_of(row * view.n), byte_of(rows * view.n));
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
            const page_rows rows(matrices,
                                 copies == nullptr ? nullptr : copies + index * copied_slab_floats);
            const apps::user_interrupt stop{fs};
            const std::uint64_t count = view.tile_count(block_tile);
            for (std::uint64_t tile = apps::take_item(g, view.totals, count, stop); tile < count;
                 tile = apps::take_item(g, view.totals, count, stop)) {
                const tile_place at = place_of(view, block_tile, tile);
                float totals[64];
                if (multiply_on_block(g, rows, view, at, totals)) write_tile(g, fs, at, totals);
            }
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

#if defined(__CUDACC__)
struct group_plan {
    std::uint64_t groups;
    bool pins = false;  // thread blocks pin the pages that they read
};

// How many thread blocks the kernel has.
group_plan plan_groups(const runtime& rt, const product_view& view) {
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

class tile_product final : public kernel_product {
public:
    using kernel_product::kernel_product;

private:
    status place() override {
        // Few rows of tiles at a time, so that they go to the file one after the other while others
        // are made, and little is left at the end; but where B has to be read anew each time, many.
        const bool stays = job_.b.bytes <= *rt_.settings().cache_bytes / 2;
        view_ = {job_.size.m, job_.size.n, job_.size.k, nullptr, nullptr, stays ? 4u : 16u};
        std::vector<std::uint64_t> numbers(std::max(view_.m, view_.k));
        std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
        // Rows of tiles are at least 64 high.
        if (!memory_->place(view_.numbers, numbers) || !memory_->allocate(totals_, 1) ||
            !memory_->allocate(ended_, pieces_of(view_.m, 64)))
            return no_room("numbers of rows", numbers.size() * sizeof(std::uint64_t));
        view_.totals = totals_;
        if (!on_gpu_) {
            groups_ = threads_;
            return rooms_.allocate(threads_, sizeof(lane_room) / sizeof(float));
        }
#if defined(__CUDACC__)
        const group_plan plan = plan_groups(rt_, view_);
        groups_ = plan.groups;
        const std::uint64_t floats = plan.pins ? 0 : groups_ * copied_slab_floats;
        if (!plan.pins && !memory_->allocate(copies_, floats))
            return no_room("copies of parts of the matrices", floats * sizeof(float));
#endif
        return {};
    }
    static status no_room(const std::string& wanted, std::uint64_t bytes) {
        return {-ENOMEM, wanted + " need " + format_size(bytes) +
                             " of memory that is not free; use a smaller --cache"};
    }

    int launch_on(const product_view& view, int result) {
        launch_shape shape;
        shape.blocks = static_cast<std::uint32_t>(groups_);
        const multiply_tiles work{view, a_, b_, result, rooms_.pointers(), copies_, ended_};
        return launch<width::block>(rt_, groups_, work, shape);
    }
    int rehearse() override {
        product_view none = view_;
        none.m = 0;
        return launch_on(none, -1);
    }
    int launch_for(int result) override { return launch_on(view_, result); }
    [[nodiscard]] std::string gpu_note() const override {
        return std::to_string(groups_) + " thread blocks" +
               (copies_ == nullptr ? "" : ", copies of slabs");
    }

    product_view view_{};
    apps::thread_scratch rooms_;
    float* copies_ = nullptr;
    std::uint64_t* ended_ = nullptr;  // of each row of tiles: how many were written
};

}  // namespace

status multiply_matrices(const matrix_job& job, method_report& report) {
    return multiply_with<tile_product>(job, report);
}

}  // namespace penstock::matrix
