// The ways to multiply: what each is told, and the libraries that some of them use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "common/device_memory.hpp"
#include "common/files.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/work_items.hpp"
#include "penstock/options.hpp"

namespace penstock::matrix {

enum class product_shape : std::uint8_t { vector, matrix };

// A is m by k, B k by n, the result m by n. A vector is a matrix of one column.
struct matrix_sizes {
    std::uint64_t m = 0;
    std::uint64_t n = 1;
    std::uint64_t k = 0;
};

struct matrix_job {
    product_shape shape = product_shape::vector;
    matrix_sizes size;
    apps::number_file a;
    apps::number_file b;                        // the vector, or a matrix
    const apps::output_file* result = nullptr;  // open, and has a passing name
    std::uint32_t repeats = 1;
    bool windows = true;  // penstock on a GPU
    bool quiet = false;
    options settings;

    [[nodiscard]] std::uint64_t result_bytes() const { return size.m * size.n * sizeof(float); }
};

using apps::method_report;

// One kernel that reads the operands and writes the result through Penstock.
status multiply_vector(const matrix_job& job, method_report& report);
status multiply_matrices(const matrix_job& job, method_report& report);

// Repeats such a product: from the files of the operands to the result in its own, where other
// programs see it. `all` has the runtime, the memory, a launch that does nothing (rehearse), so
// that kernels and their stacks are on the device before the clock runs, and launch_for(result).
template <typename Product>
status repeat_product(const matrix_job& job, Product& all, const std::vector<int>& operands,
                      apps::stopwatch& watch, method_report& report) {
    runtime& rt = all.rt;
    if (const int code = all.rehearse(); code != 0) return apps::launch_error(rt, code);
    report.start_seconds = watch.lap();
    if (rt.where() == backend::gpu && job.windows)
        report.window_bytes = apps::open_windows(rt, operands);
    report.window_seconds = watch.lap();
    return apps::repeat_timed(job.repeats, rt, report, [&]() -> status {
        if (status s = all.memory.reset(); !s) return s;
        int result = -1;
        if (status s = apps::open_result(rt, *job.result, result); !s) return s;
        const int code = all.launch_for(result);
        return apps::close_result(
            rt, result, code != 0 ? apps::launch_error(rt, code) : all.memory.outcome(job));
    });
}

// What went wrong in such a kernel, with a message that names the file.
status outcome_of(apps::device_memory& memory, const apps::work_totals* from,
                  const matrix_job& job);
// The state of a product did not reach the device or come back.
status copy_failed();

// A library that knows nothing of Penstock multiplies files that are mapped as regions: cuBLAS on
// gpu, OpenBLAS on cpu. -ENODEV and a message where that library is missing.
status multiply_regions(const matrix_job& job, method_report& report);

// Baseline: OpenBLAS on memory maps of the operands. -ENODEV and a message where it is missing.
status multiply_with_cpu(const matrix_job& job, method_report& report);

// Baseline: CPU threads read the operands into pinned memory, and copies, cuBLAS and the way of the
// result back overlap. -ENODEV and a message without a GPU.
status multiply_with_cuda(const matrix_job& job, method_report& report);

// A library that multiplies matrices in plain memory of its device, and knows nothing of files.
class blas {
public:
    blas() = default;
    virtual ~blas() = default;
    blas(const blas&) = delete;
    blas& operator=(const blas&) = delete;

    // C = A B, all of them row by row. On a GPU the work is put on the default stream.
    virtual status multiply(const matrix_sizes& size, const float* a, const float* b, float* c) = 0;
    [[nodiscard]] virtual std::string name() const = 0;
};

// -ENODEV and a message that begins with `asked_by` if the program was built without the library,
// or there is no such GPU.
status make_openblas(const std::string& asked_by, std::uint32_t threads,
                     std::unique_ptr<blas>& out);
status make_cublas(const std::string& asked_by, int device, std::unique_ptr<blas>& out);

// Rows of the result that fit `result_bytes`, made of rows of A that fit `a_bytes`; at least one.
std::uint64_t rows_within(const matrix_sizes& size, std::uint64_t result_bytes,
                          std::uint64_t a_bytes);

}  // namespace penstock::matrix
