// The ways to multiply. All write the same results, bit by bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/method_report.hpp"
#include "common/number_file.hpp"
#include "common/output_file.hpp"

namespace penstock::matvec {

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

}  // namespace penstock::matvec
