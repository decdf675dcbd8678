// The ways to multiply, and the memory that each method needs on the device that computes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
#include "common/report_text.hpp"
#include "common/numbers.hpp"
#include "common/files.hpp"
#include "matvec_view.hpp"

namespace penstock::matvec {

// The ways to multiply. All write the same results, bit by bit.

struct matvec_job {
    apps::number_file matrix;
    apps::number_file vector;
    const apps::output_file* result = nullptr;  // open, and has a passing name
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
    std::uint32_t repeats = 1;
    bool windows = true;  // penstock on a GPU
    bool quiet = false;
    options settings;
};

using apps::method_report;

// One kernel that reads the matrix and writes the result through Penstock.
status multiply_with_penstock(const matvec_job& job, method_report& report,
                              std::vector<std::string>& notes);

// Baseline: the same sums on CPU threads, from a memory map of the matrix.
status multiply_with_cpu(const matvec_job& job, method_report& report);

// Baseline: CPU threads read the matrix into pinned memory, chunk by chunk, and copies and sums
// overlap. -ENODEV and a message without a GPU.
status multiply_with_cuda(const matvec_job& job, method_report& report);

// What every method places in the memory of the device that computes.
class matvec_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit matvec_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    // Room for the vector, the sums and the result.
    status place(const matvec_job& job);

    // Before each product, so that one may follow another.
    status reset();
    // What went wrong in the product, with a message that names the file.
    status outcome(const matvec_job& job);
    status upload_vector(const float* from);
    status download_result(float* to);

    [[nodiscard]] const matvec_view& view() const { return view_; }
    [[nodiscard]] float* x() const { return x_; }

private:
    std::unique_ptr<apps::device_memory> memory_;
    matvec_view view_{};
    float* x_ = nullptr;
};

}  // namespace penstock::matvec
