// The gpu back end as a lender: a small kernel for each loan, on a stream of its own, which copies
// parts to a desk in pinned memory. The kernel is in gpu_gather.cu, for it is no more than two
// lines.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "device/gpu_memory.cuh"
#include "device/loan_desks.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

// Thread-safe, but for init. Nothing here waits for a kernel: what was launched is seen to have
// ended by the states that it stored, and the driver is asked for nothing but the launch. All
// memory is had when the runtime is made, since allocating blocks while a kernel waits for the
// host.
class gpu_loans {
public:
    explicit gpu_loans(const gpu_context& context) : context_(context) {}
    // Waits for what was launched.
    ~gpu_loans();
    gpu_loans(const gpu_loans&) = delete;
    gpu_loans& operator=(const gpu_loans&) = delete;

    // -ENOMEM or -EIO: no memory or no stream.
    status init(gpu_memory& memory);
    // Loads the kernel, by running it on nothing.
    cudaError_t load(const runtime_ref& fs);
    bool begin(const runtime_ref& fs, loan& what);
    void end(loan& what);
    void end_late() { desks_.end_late(); }

private:
    const gpu_context context_;
    loan_desks desks_;
    std::array<cudaStream_t, loan_desks::count>
        streams_{};  // of the highest priority, so that a part is copied before blocks of other
                     // kernels begin; one for each desk
};

}  // namespace penstock::host
