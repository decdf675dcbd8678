// The gpu back end's half of runtime::gather: rows put in order by span, and fetched by all warps
// of the device.
#pragma once

#include <cuda_runtime.h>

#include "device/gather.hpp"
#include "device/gpu_context.cuh"

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
// pinned memory for the kernels' verdict.
std::int64_t gather_on_gpu(const runtime_ref& fs, const gather_job& job, gather_control* control,
                           std::int64_t* code, cudaStream_t stream);

}  // namespace penstock::host
