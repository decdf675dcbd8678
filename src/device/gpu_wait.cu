#include "device/gpu_wait.cuh"

#include <cerrno>
#include <chrono>
#include <new>
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

// The event of the stream's last verb covers those before. Else one of a stream whose verbs have
// ended, or a new one. The caller holds the lock. Null: the driver has none.
CUevent noted_verbs::event_for(unsigned long long stream) {
    mark* unused = nullptr;
    for (mark& m : marks_) {
        if (m.stream == stream) return m.event;
        if (unused == nullptr && driver().event_query(m.event) == CUDA_SUCCESS) unused = &m;
    }
    if (unused == nullptr) {
        marks_.reserve(marks_.size() + 1);  // before there is an event that could be lost
        mark made;
        if (driver().event_create(&made.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            return nullptr;
        unused = &marks_.emplace_back(made);
    }
    unused->stream = stream;
    return unused->event;
}

bool noted_verbs::record(cudaStream_t stream) try {
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned long long number = 0;
    if (driver().is_capturing(stream, &state) != CUDA_SUCCESS ||
        state != CU_STREAM_CAPTURE_STATUS_NONE ||
        driver().stream_id(stream, &number) != CUDA_SUCCESS)
        return false;
    const std::lock_guard lock(mutex_);
    const CUevent event = event_for(number);
    return event != nullptr && driver().event_record(event, stream) == CUDA_SUCCESS;
} catch (const std::bad_alloc&) {
    return false;
}

void noted_verbs::note(cudaStream_t stream) {
    if (!record(stream)) incomplete_ = true;
}

// It waits without the lock, so that other threads go on noting, and once for each event: one that
// is recorded anew meanwhile is waited for as it was when its wait began.
int noted_verbs::wait() {
    int first = 0;
    for (std::size_t i = 0;; ++i) {
        CUevent event = nullptr;
        {
            const std::lock_guard lock(mutex_);
            if (i == marks_.size()) return first;
            event = marks_[i].event;
        }
        if (const int code = code_of_wait(driver().event_synchronize(event)); first == 0)
            first = code;
    }
}

void noted_verbs::end() {
    for (const mark& m : marks_) driver().event_destroy(m.event);
    marks_.clear();
}

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
