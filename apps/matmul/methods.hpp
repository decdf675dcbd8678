// The ways to multiply, and the memory that each method needs on the device that computes.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
#include "common/kernel_files.hpp"
#include "common/report_text.hpp"
#include "common/numbers.hpp"
#include "common/files.hpp"
#include "matmul_view.hpp"

namespace penstock::matmul {

// The ways to multiply. All write the same results, bit by bit.

struct matmul_job {
    apps::number_file a;                        // m rows of k
    apps::number_file b;                        // k rows of n
    const apps::output_file* result = nullptr;  // open, and has a passing name
    std::uint64_t m = 0;
    std::uint64_t n = 0;
    std::uint64_t k = 0;
    std::uint32_t repeats = 1;
    bool windows = true;  // penstock on a GPU
    bool quiet = false;
    options settings;
};

using apps::method_report;

// One kernel that reads both matrices and writes the result through Penstock.
status multiply_with_penstock(const matmul_job& job, method_report& report,
                              std::vector<std::string>& notes);

// Baseline: the same products on CPU threads, from memory maps of the matrices.
status multiply_with_cpu(const matmul_job& job, method_report& report);

// Baseline: CPU threads read panels of the matrices into pinned memory, and copies, products and
// the way of the result back overlap. -ENODEV and a message without a GPU.
status multiply_with_cuda(const matmul_job& job, method_report& report);

// What the methods place in the memory of the device that computes.
class matmul_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit matmul_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    status place(const matmul_job& job) {
        view_ = {job.m, job.n, job.k, nullptr, nullptr};
        std::vector<std::uint64_t> numbers(std::max(job.m, job.k));
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
    status outcome(const matmul_job& job) {
        apps::work_totals totals{};
        if (!memory_->download(&totals, view_.totals, sizeof totals)) return copy_failed();
        if (totals.code == 0) return {};
        const auto failed = static_cast<bad_file>(totals.failed);
        return failed == bad_file::result
                   ? apps::write_error(totals.code)
                   : apps::read_error(failed == bad_file::a ? job.a : job.b, totals.code);
    }
    [[nodiscard]] const matmul_view& view() const { return view_; }
    // How many rows of tiles are made at the same time.
    void make_together(std::uint64_t rows) { view_.together = rows; }
    // Of each row of tiles, however high they are: how many were written.
    [[nodiscard]] std::uint64_t* ended() const { return ended_; }

private:
    // Rows of tiles are never more.
    [[nodiscard]] std::uint64_t row_count() const { return pieces_of(view_.m, 64); }
    static status copy_failed() {
        return {-EIO,
                "the state of the product could not be copied to or from the device; is the GPU in "
                "order?"};
    }

    std::unique_ptr<apps::device_memory> memory_;
    matmul_view view_{};
    std::uint64_t* ended_ = nullptr;
};

}  // namespace penstock::matmul
