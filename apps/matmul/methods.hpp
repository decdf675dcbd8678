// The ways to multiply. All write the same results, bit by bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/method_report.hpp"
#include "common/number_file.hpp"
#include "common/output_file.hpp"

namespace penstock::matmul {

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

}  // namespace penstock::matmul
