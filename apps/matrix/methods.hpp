// The ways to multiply: what each is told, the libraries that some of them use, and the check of
// what they find.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "common/files.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
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
    bool windows = false;  // penstock on a GPU
    bool quiet = false;
    options settings;

    [[nodiscard]] bool is_vector() const { return shape == product_shape::vector; }
    [[nodiscard]] std::uint64_t result_bytes() const { return size.m * size.n * sizeof(float); }
};

using apps::method_report;

// One kernel that reads the operands and writes the result through Penstock.
status multiply_vector(const matrix_job& job, method_report& report);
status multiply_matrices(const matrix_job& job, method_report& report);

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
inline std::uint64_t rows_within(const matrix_sizes& size, std::uint64_t result_bytes,
                                 std::uint64_t a_bytes) {
    const std::uint64_t rows =
        std::min(result_bytes / (size.n * sizeof(float)), a_bytes / (size.k * sizeof(float)));
    return std::clamp<std::uint64_t>(rows, 1, size.m);
}

// The result against a reference in double precision.

struct check_report {
    double seconds = 0;
    std::uint64_t rows = 0;  // that were checked
    // |c - reference| / sum of |a b|, over all numbers of these rows.
    double greatest_deviation = 0;
    std::uint64_t worst_row = 0, worst_column = 0;
    double tolerance = 0;  // most that it may be
    // Numbers that single precision cannot hold, or with what is no number.
    std::uint64_t not_judged = 0;
};

// What the roundings of a sum of k products come to at most, relative to the sum of the products'
// sizes. docs/apps/matrix.md derives it.

// Of a row and a vector, in the order that is written there.
double vector_tolerance(std::uint64_t k);

// Of a row and a column of a matrix, in the order that is written there.
double product_tolerance(std::uint64_t k);

// In any order, as of a library.
double any_order_tolerance(std::uint64_t k);

// Reads the result from its file. Of a vector all rows. Of a matrix all rows too, or, where that
// would be more than `most_products`, one of each 128 rows, drawn by chance from the size: so a row
// of every tile. `in_order`: by a method that adds in the order that is written down. -EILSEQ and a
// message that names the place if a deviation is larger than the tolerance.
status check_result(const matrix_job& job, bool in_order, check_report& out,
                    double most_products = 4e9);

}  // namespace penstock::matrix
