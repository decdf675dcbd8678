// The gpu back end's half of runtime::gather: rows put in order by span, and fetched by all warps
// of the device; and of peer reads, whose kernel is two lines and stands beside its kernels.
#pragma once

#include <cuda_runtime.h>

#include <array>

#include "device/device.hpp"
#include "device/gpu_context.cuh"
#include "device/loan.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

// What the kernels of one gather share. Device memory, one for each desk.
struct gather_control {
    std::uint32_t in_span[max_spans];     // rows of each span
    std::uint32_t next_place[max_spans];  // where in the order the next row of each span goes
    std::uint64_t next_piece;
    std::int64_t code;  // 0, or the first error
};

// Loads every kernel, by running it on nothing.
cudaError_t load_gather_kernels(const runtime_ref& fs, gather_control* control,
                                cudaStream_t stream);

// Runs the job on the current device, after what is on the stream, and waits for its end. `code`:
// pinned memory for the kernels' verdict. `memory`: counts the room for an order of the rows.
std::int64_t gather_on_gpu(const runtime_ref& fs, const gather_job& job, gather_control* control,
                           std::int64_t* code, gpu_memory& memory, cudaStream_t stream);

// The gpu back end as a lender: a small kernel for each loan, on a stream of its own, which copies
// parts to a desk in pinned memory.
//
// Thread-safe, but for init. Nothing here waits for a kernel: what was launched is seen to have
// ended by the states that it stored, and the driver is asked for nothing but the launch. All
// memory is had when the runtime is made, since allocating blocks while a kernel waits for the
// host.
class gpu_loans final : public page_lender {
public:
    explicit gpu_loans(const gpu_context& context) : context_(context) {}
    // Waits for what was launched.
    ~gpu_loans() override;
    gpu_loans(const gpu_loans&) = delete;
    gpu_loans& operator=(const gpu_loans&) = delete;

    // -ENOMEM or -EIO: no memory or no stream.
    status init(gpu_memory& memory);
    // Loads the kernel, by running it on nothing.
    cudaError_t load(const runtime_ref& fs);
    bool begin_loan(const runtime_ref& fs, loan& peer_read) override;
    void end_loan(loan& peer_read) override;
    void end_late_loans() override { desks_.end_late(); }

private:
    const gpu_context context_;
    loan_desks desks_;
    std::array<cudaStream_t, loan_desks::count>
        streams_{};  // of the highest priority, so that a part is copied before blocks of other
                     // kernels begin; one for each desk
};

}  // namespace penstock::host
