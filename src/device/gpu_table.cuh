// The gpu back end's half of tables: kernels that take a list of rows.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/device.hpp"
#include "device/gpu_context.cuh"

namespace penstock::host {

// The grids of the kernels, which depend on the device alone. They are asked for when the runtime
// is made, so that a launch costs no question to the driver.
class gpu_tables {
public:
    // Loads every kernel, by running it on nothing: loading a kernel ends a stream capture, and
    // blocks while another kernel waits for the host.
    cudaError_t load(const runtime_ref& fs, cudaStream_t stream);
    // Puts the job on the stream. 0, or a negative errno, and then nothing was begun.
    [[nodiscard]] int launch(const runtime_ref& fs, const table_job& job,
                             cudaStream_t stream) const;

private:
    std::uint32_t most_blocks_[4] = {};  // of each verb
};

}  // namespace penstock::host
