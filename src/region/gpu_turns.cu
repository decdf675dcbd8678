// Turns of a region's requests on streams of a GPU. An event tells when the stream has come to a
// request. A word in memory of the host holds the number of the last request that ended, and the
// stream waits until that is large enough (cuStreamWaitValue32), which holds up no kernel and no
// thread of the driver.
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>

#include "device/gpu_context.cuh"
#include "region/region_memory.hpp"
#include "region/stream_turns.hpp"

namespace penstock::region {

namespace {

using host::check_stream;
using host::context_is_gone;
using host::device_guard;
using host::driver;
using host::errno_of;

class gpu_turns final : public stream_turns {
public:
    explicit gpu_turns(const host::gpu_context& context)
        : context_(context), memory_(context.device) {}

    // A stream that has not seen the last end yet does so before the word goes.
    ~gpu_turns() override {
        const device_guard guard(context_);
        if (!guard) return;
        for (const turn& passing : turns_) cudaEventSynchronize(passing.left);
        for (const auto* turns : {&turns_, &unused_})
            for (const turn& old : *turns) {
                cudaEventDestroy(old.came);
                cudaEventDestroy(old.left);
            }
    }

    // 0 or a negative errno.
    int take() {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        ended_ = static_cast<std::uint32_t*>(memory_.shared_bytes(sizeof *ended_));
        return ended_ != nullptr ? 0 : -ENOMEM;
    }

    int begin(std::uint32_t number, void* stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const auto on = static_cast<cudaStream_t>(stream);
        if (const int busy = check_stream(on); busy != 0) return busy;
        turn next;
        if (const int code = unused_turn(next); code != 0) return code;
        next.number = number;
        CUresult waits = CUDA_ERROR_UNKNOWN;
        if (cudaEventRecord(next.came, on) == cudaSuccess)
            waits = driver().wait_value(on, reinterpret_cast<CUdeviceptr>(ended_), number,
                                        CU_STREAM_WAIT_VALUE_GEQ);
        // Without this record the word is not waited for at the end, which only a device that is
        // lost brings about.
        if (waits == CUDA_SUCCESS) cudaEventRecord(next.left, on);
        const std::lock_guard lock(mutex_);
        (waits == CUDA_SUCCESS ? turns_ : unused_).push_back(next);
        if (waits == CUDA_SUCCESS) return 0;
        return waits == CUDA_ERROR_NOT_SUPPORTED ? -EOPNOTSUPP : -EIO;
    }

    int reached(std::uint32_t number) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        cudaEvent_t came = nullptr;
        {
            const std::lock_guard lock(mutex_);
            for (const turn& of : turns_)
                if (of.number == number) came = of.came;
        }
        return errno_of(cudaEventSynchronize(came));
    }

    // Release: with the stream's wait, which reads the word before any work that comes after. What
    // the request moved has ended, for its thread has waited for that.
    void end(std::uint32_t number) override {
        std::atomic_ref<std::uint32_t>(*ended_).store(number, std::memory_order_release);
    }

private:
    struct turn {
        std::uint32_t number = 0;
        cudaEvent_t came = nullptr, left = nullptr;  // the stream: to the request, and over it
    };

    // 0 or a negative errno. A turn is used again once its stream has left it.
    int unused_turn(turn& out) {
        const std::lock_guard lock(mutex_);
        while (!turns_.empty() && has_passed(turns_.front())) {
            unused_.push_back(turns_.front());
            turns_.pop_front();
        }
        if (!unused_.empty()) {
            out = unused_.front();
            unused_.pop_front();
            return 0;
        }
        cudaError_t code = cudaEventCreateWithFlags(&out.came, cudaEventDisableTiming);
        if (code == cudaSuccess) code = cudaEventCreateWithFlags(&out.left, cudaEventDisableTiming);
        if (code != cudaSuccess && out.came != nullptr) cudaEventDestroy(out.came);
        return errno_of(code);
    }
    [[nodiscard]] bool has_passed(const turn& of) const {
        const std::uint32_t ended =
            std::atomic_ref<std::uint32_t>(*ended_).load(std::memory_order_relaxed);
        return static_cast<std::int32_t>(ended - of.number) >= 0 &&
               cudaEventQuery(of.left) == cudaSuccess;
    }

    const host::gpu_context context_;
    host::gpu_memory memory_;
    std::uint32_t* ended_ = nullptr;  // written by the thread that serves, read by streams
    std::mutex mutex_;
    // Guarded by mutex_:
    std::deque<turn> turns_;  // by number
    std::deque<turn> unused_;
};

}  // namespace

std::unique_ptr<stream_turns> make_gpu_turns(int device, int& code) {
    auto turns = std::make_unique<gpu_turns>(host::gpu_context::of(device));
    code = turns->take();
    return code == 0 ? std::move(turns) : nullptr;
}

}  // namespace penstock::region
