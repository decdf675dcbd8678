// Turns of a region's requests on streams of a GPU. Words in memory of the host say all: a request
// puts on its stream, by one call of the driver (cuStreamBatchMemOp), a write that tells that the
// stream has come to it, a wait until the number of the last request that ended is large enough,
// and a write that tells that the stream has gone on. That holds up no kernel and no thread of the
// driver; three calls with events cost the caller twice as much.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>

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
using clock = std::chrono::steady_clock;

// So many requests of a region may be on streams at a time.
constexpr std::uint32_t most_turns = 4096;

// How long a thread that waits for a stream does so without a nap, and how long it naps then: a
// part of what it has waited for, so that it comes at most so much later.
constexpr std::chrono::nanoseconds longest_spin = std::chrono::microseconds(100),
                                   longest_nap = std::chrono::microseconds(500);
constexpr int part_of_wait = 16;
// How often it asks whether the device, which has to write the word, is still there.
constexpr std::chrono::milliseconds look_at_device = std::chrono::milliseconds(20);

std::uint32_t load(std::uint32_t& word, std::memory_order order) {
    return std::atomic_ref<std::uint32_t>(word).load(order);
}

CUstreamBatchMemOpParams write_of(std::uint32_t& word, std::uint32_t value) {
    CUstreamBatchMemOpParams out{};
    // With a barrier before it: a thread that sees the number sees what the stream did before.
    out.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    out.writeValue.address = reinterpret_cast<CUdeviceptr>(&word);
    out.writeValue.value = value;
    return out;
}

CUstreamBatchMemOpParams wait_of(std::uint32_t& word, std::uint32_t value) {
    CUstreamBatchMemOpParams out{};
    out.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    out.waitValue.address = reinterpret_cast<CUdeviceptr>(&word);
    out.waitValue.value = value;
    out.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
    return out;
}

class gpu_turns final : public stream_turns {
public:
    explicit gpu_turns(const host::gpu_context& context)
        : context_(context), memory_(context.device) {}

    // A stream that has not gone past the last end yet does so before the words go.
    ~gpu_turns() override {
        if (words_ == nullptr) return;
        for (std::uint32_t i = 0; i < most_turns; ++i)
            if (await(words_->turns[i].left, begun_[i]) != 0) break;
        const device_guard guard(context_);
        if (guard && probe_ != nullptr) cudaEventDestroy(probe_);
    }

    // 0 or a negative errno.
    int take() {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        words_ = static_cast<words*>(memory_.shared_bytes(sizeof(words)));
        if (words_ == nullptr) return -ENOMEM;
        return errno_of(cudaEventCreateWithFlags(&probe_, cudaEventDisableTiming));
    }

    int begin(std::uint32_t number, void* stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const auto on = static_cast<cudaStream_t>(stream);
        if (const int busy = check_stream(on); busy != 0) return busy;
        turn& next = words_->turns[number % most_turns];
        std::uint32_t& begun = begun_[number % most_turns];
        // Relaxed: nothing but the word itself is used again.
        if (load(next.left, std::memory_order_relaxed) != begun) return -EAGAIN;
        CUstreamBatchMemOpParams all[] = {write_of(next.came, number),
                                          wait_of(words_->ended, number),
                                          write_of(next.left, number)};
        const CUresult code = driver().batch_of_words(on, std::size(all), all, 0);
        if (code == CUDA_SUCCESS) begun = number;
        return code == CUDA_SUCCESS ? 0 : code == CUDA_ERROR_NOT_SUPPORTED ? -EOPNOTSUPP : -EIO;
    }

    int reached(std::uint32_t number) override {
        return await(words_->turns[number % most_turns].came, number);
    }

    // Acquire: as await().
    bool has_come(std::uint32_t number) override {
        return load(words_->turns[number % most_turns].came, std::memory_order_acquire) == number;
    }

    // Release: with the stream's wait, which reads the word before any work that comes after. What
    // the request moved has ended, for its thread has waited for that.
    void end(std::uint32_t number) override {
        std::atomic_ref<std::uint32_t>(words_->ended).store(number, std::memory_order_release);
    }

private:
    // Written by streams: the number of the last request to which, and past which, one has come.
    struct turn {
        std::uint32_t came, left;
    };
    struct words {
        // By number, modulo. A turn is used again once its stream has left it; as requests end in
        // the order of their numbers, no other turn would be free earlier.
        std::array<turn, most_turns> turns;
        // Written by the threads that serve and watch (request_thread.hpp), read by streams.
        alignas(64) std::uint32_t ended;
    };

    // Until a stream has written the number there. 0, or a negative errno if the device is lost.
    // Acquire: with the stream's write, so that what was before it on the stream is seen.
    int await(std::uint32_t& word, std::uint32_t number) {
        const auto began = clock::now();
        for (auto looked = began; load(word, std::memory_order_acquire) != number;) {
            const auto now = clock::now();
            if (now - looked > look_at_device) {
                if (const int code = device_code(); code != 0) return code;
                looked = now;
            }
            if (now - began < longest_spin) std::this_thread::yield();
            else
                std::this_thread::sleep_for(
                    std::min(longest_nap, std::chrono::nanoseconds(now - began) / part_of_wait));
        }
        return 0;
    }
    // Of an event that nothing was recorded for, which is an error only if the device is lost.
    int device_code() {
        const device_guard guard(context_);
        return guard ? errno_of(cudaEventQuery(probe_)) : context_is_gone;
    }

    const host::gpu_context context_;
    host::gpu_memory memory_;
    words* words_ = nullptr;
    cudaEvent_t probe_ = nullptr;
    // What the stream writes last, of each turn; that of the caller of begin().
    std::array<std::uint32_t, most_turns> begun_{};
};

}  // namespace

std::unique_ptr<stream_turns> make_gpu_turns(int device, int& code) {
    auto turns = std::make_unique<gpu_turns>(host::gpu_context::of(device));
    code = turns->take();
    return code == 0 ? std::move(turns) : nullptr;
}

}  // namespace penstock::region
