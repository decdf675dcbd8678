// Waiting for all work that a device has under way, beside stream captures of the program.
//
// To synchronise a device or a context, or to record an event of a whole context, does not go
// together with captures: while any thread captures a stream of the device, in any mode, such a
// call fails and makes the capture invalid. No call tells whether some stream is being captured, so
// the library makes none of these. It allocates a piece of memory and frees it, which captures
// allow to a relaxed thread (device_guard). To free memory that cuMemAlloc gave "causes the GPU to
// synchronize across all executing CUDA streams" (CUDA Programming Guide, stream-ordered memory
// allocation): any kernel may use it, so each that was launched before has to end first. The guest
// tests (guest_wait) look whether the driver does so, beside captures too. CUDA calls of other
// threads may be held up meanwhile, as by each cudaFree of the program.
//
// An event for each verb of a table, recorded on its stream, would do for Python's arrays. It was
// tried and dropped: it puts a lock and a call of the driver into each verb, and graphs, kernels of
// the program and regions need the wait below all the same.
#include <cerrno>
#include <chrono>
#include <thread>

#include "device/device.hpp"
#include "device/gpu_context.cuh"

namespace penstock::host {

namespace {

// Of a call that waits. The codes of both interfaces of CUDA are the same numbers. On a device that
// is lost nothing runs.
int code_of_wait(CUresult code) {
    if (code == CUDA_SUCCESS || is_sticky(static_cast<cudaError_t>(code))) return 0;
    return code == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EBUSY;
}

// Large first: such a piece is given back to the device, a small one only within the driver's own.
CUresult take_piece(CUdeviceptr& out) {
    CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
    for (const std::size_t bytes : {std::size_t{2} << 20, std::size_t{256}}) {
        code = driver().allocate(&out, bytes);
        if (code != CUDA_ERROR_OUT_OF_MEMORY) return code;
    }
    return code;
}

}  // namespace

int wait_for_current_device() {
    constexpr std::chrono::seconds longest(10);
    constexpr std::chrono::milliseconds nap(10);
    const auto until = std::chrono::steady_clock::now() + longest;
    CUdeviceptr piece = 0;  // kept until it could be freed
    for (;;) {
        CUresult code = piece == 0 ? take_piece(piece) : CUDA_SUCCESS;
        if (code == CUDA_SUCCESS) code = driver().free(piece);
        else piece = 0;
        const int waited = code_of_wait(code);
        if (waited == 0 || std::chrono::steady_clock::now() >= until) return waited;
        std::this_thread::sleep_for(nap);
    }
}

// After a reset there is no context until one is asked for, and nothing runs.
int wait_for_gpu(int device) {
    unsigned flags = 0;
    int is_active = 0;
    if (!driver().missing.empty() ||
        driver().context_state(device, &flags, &is_active) != CUDA_SUCCESS || is_active == 0)
        return 0;
    const device_guard guard(gpu_context::of(device));
    return guard ? wait_for_current_device() : 0;
}

}  // namespace penstock::host
