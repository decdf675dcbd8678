// A product by kernels that read the operands and write the result through Penstock: what both
// shapes have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/device_memory.hpp"
#include "common/process.hpp"
#include "common/work_items.hpp"
#include "methods.hpp"

namespace penstock::matrix {

class kernel_product {
public:
    kernel_product(runtime& rt, const matrix_job& job);
    virtual ~kernel_product() = default;
    kernel_product(const kernel_product&) = delete;
    kernel_product& operator=(const kernel_product&) = delete;

    // Repeats it: from the files of the operands to the result in its own, where other programs see
    // it.
    status multiply(apps::stopwatch& watch, method_report& report);

protected:
    // Memory of the device, and how many groups the kernel has.
    virtual status place() = 0;
    // Launches that do nothing, so that kernels and their stacks are on the device before the clock
    // runs.
    virtual int rehearse() = 0;
    virtual int launch_for(int result) = 0;
    // How a GPU computes, in a few words.
    [[nodiscard]] virtual std::string gpu_note() const = 0;

    runtime& rt_;
    const matrix_job& job_;
    const bool on_gpu_;
    const std::uint32_t threads_;
    std::unique_ptr<apps::device_memory> memory_;
    apps::work_totals* totals_ = nullptr;  // there
    int a_ = -1, b_ = -1;                  // descriptors
    std::uint64_t groups_ = 1;

private:
    status reset();
    status outcome();
};

template <typename Product>
status multiply_with(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    return Product(*report.rt, job).multiply(watch, report);
}

}  // namespace penstock::matrix
