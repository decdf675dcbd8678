// A matrix times a vector: one kernel that reads the matrix as it goes and writes the result,
// through Penstock.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "cached_rows.hpp"
#include "common/message.hpp"
#include "kernel_product.hpp"
#include "penstock/launch.hpp"
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
        if (view.rows == 0) return;  // a rehearsal
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
        const mapping page = map(g, fs, fd, byte_of(first), byte_of(count));
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
        const auto write_rows = [&](const stretch& rows) {
            return write_numbers(g, fs, result, view.y + rows.begin, rows.count(), rows.begin);
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

class vector_product final : public kernel_product {
public:
    using kernel_product::kernel_product;

private:
    // The vector, the sums and the result.
    status place() override {
        view_.rows = job_.size.m;
        view_.columns = job_.size.k;
        view_.segments = pieces_of(view_.columns, segment_columns);
        view_.item_rows = rows_of_item(view_.columns);
        view_.add_products = chosen_kernels().add_products;
        groups_ = warp_count(rt_, threads_);
        const bool whole = view_.segments == 1;
        if (!memory_->allocate(x_, view_.columns) ||
            !memory_->allocate(view_.sums, view_.rows * view_.segments) ||
            (!whole && !memory_->allocate(view_.y, view_.rows)) ||
            !memory_->allocate(view_.ended, view_.band_count()) || !memory_->allocate(totals_, 1))
            return apps::failure(
                -ENOMEM, "the vector and the sums of ", view_.rows, " rows need ",
                format_size((view_.columns + view_.rows * (view_.segments + (whole ? 0 : 1))) *
                            sizeof(float)),
                " of memory that is not free; use a smaller --cache, or multiply fewer rows at a "
                "time");
        view_.x = x_;
        view_.totals = totals_;
        if (whole) view_.y = view_.sums;
        return {};
    }
    int rehearse() override {
        vector_view none = view_;
        none.rows = 0;
        return launch_both(none, 1, -1);  // of no group at all nothing would be launched
    }
    int launch_for(int result) override {
        return launch_both(view_, pieces_of(job_.b.bytes, vector_piece_bytes), result);
    }
    int launch_both(const vector_view& view, std::uint64_t pieces, int result) {
        const int code = launch<width::warp>(rt_, pieces, read_vector{view, x_, b_});
        return code != 0 ? code
                         : launch<width::warp>(rt_, groups_, multiply_items{view, a_, result});
    }
    [[nodiscard]] std::string gpu_note() const override {
        return std::to_string(groups_) + " warps";
    }

    vector_view view_{};
    float* x_ = nullptr;
};

}  // namespace

status multiply_vector(const matrix_job& job, method_report& report) {
    return multiply_with<vector_product>(job, report);
}

}  // namespace penstock::matrix
