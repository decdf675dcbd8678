// Chunks of files through pinned memory to a GPU, as one would write it by hand: threads read
// slices of a chunk and copy each as soon as it is read. The thread that copied the last slice
// starts the work on the chunk. Chunks have streams of their own, so reading, copying and computing
// overlap. For the baselines; only in programs with CUDA.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <exception>
#include <mutex>
#include <string>
#include <utility>

#include "common/gpu.cuh"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

inline constexpr std::uint64_t chunk_bytes = 64u << 20;  // about so much is a chunk
inline constexpr std::uint64_t slice_bytes = 4u << 20;
// Some are read, one is copied, one computed with.
inline constexpr std::uint32_t chunks_under_way = 4;

// Where a slice lies in the room of its chunk.
struct slice_place {
    std::uint64_t offset, bytes;
};

class staged_work {
public:
    virtual ~staged_work() = default;
    [[nodiscard]] virtual std::uint64_t slices(std::uint64_t chunk) const = 0;
    // Any thread: reads a slice to its place in the chunk's pinned room.
    virtual status read(std::uint64_t chunk, std::uint64_t slice, std::byte* room,
                        slice_place& out) = 0;
    // Puts on the stream what is to be done with the chunk, all of which is `there` then. False:
    // CUDA has an error.
    virtual bool start(std::uint64_t chunk, std::uint32_t room, const std::byte* there,
                       cudaStream_t stream) = 0;
    // The stream is done with the chunk. Once for each, by any thread, before another chunk in its
    // room is started.
    virtual status finish(std::uint64_t, std::uint32_t) { return {}; }
};

class staged_pipeline {
public:
    explicit staged_pipeline(int device) : device_(device) {}

    // Rooms of so many bytes.
    status allocate(std::uint64_t room_bytes, std::uint32_t threads);
    // Chunks 0 to count - 1, in order. Returns when all are finished.
    status run(staged_work& work, std::uint64_t count);
    [[nodiscard]] std::uint32_t threads() const { return threads_; }

private:
    struct room {
        pinned_array<std::byte> pinned;
        gpu_array<std::byte> there;
        gpu_stream stream;
        gpu_event done;
        // 1 + number of the last chunk that was started; guarded by the mutex.
        std::uint64_t started = 0;
        std::uint64_t chunk = 0;        // 1 + number of the one that is in it; guarded too
        std::uint64_t slices_left = 0;  // of it; guarded too
    };
    struct slice_of_chunk {
        std::uint64_t chunk, slice;
        bool finishes;  // its thread finishes the chunk that was in the room before
    };

    bool take(const staged_work& work, slice_of_chunk& out);
    status pass(staged_work& work, const slice_of_chunk& item);
    void work_on(staged_work& work);

    int device_;
    std::uint32_t threads_ = 1;
    room rooms_[chunks_under_way];
    std::mutex mutex_;                 // guards everything below
    std::condition_variable started_;  // a chunk was started, or something failed
    std::uint64_t count_ = 0, next_chunk_ = 0, next_slice_ = 0;
    status failed_;
};

inline status staged_pipeline::allocate(std::uint64_t room_bytes, std::uint32_t threads) {
    threads_ = threads;
    for (room& slot : rooms_)
        if (cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking) != cudaSuccess ||
            cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming) != cudaSuccess ||
            cudaMallocHost(&slot.pinned, room_bytes) != cudaSuccess ||
            cudaMalloc(&slot.there, room_bytes) != cudaSuccess)
            return no_gpu_memory();
    return {};
}

// Takes the next slice that no thread has, and waits until its room is free. False if none is left,
// or something failed.
inline bool staged_pipeline::take(const staged_work& work, slice_of_chunk& out) {
    std::unique_lock lock(mutex_);
    if (!failed_.ok() || was_interrupted() || next_chunk_ == count_) return false;
    out = {next_chunk_, next_slice_++, false};
    const std::uint64_t slices = work.slices(out.chunk);
    if (next_slice_ == slices) next_slice_ = 0, ++next_chunk_;
    room& slot = rooms_[out.chunk % chunks_under_way];
    // As `started` is when the chunk that was in the room before is on its way. All slices of that
    // one were taken earlier, and each thread passes its slice on before it waits.
    const std::uint64_t before =
        out.chunk < chunks_under_way ? 0 : out.chunk - chunks_under_way + 1;
    started_.wait(lock, [&] { return slot.started >= before || !failed_.ok(); });
    if (!failed_.ok()) return false;
    // The first thread to come sets up the room. Its slice need not be the chunk's first.
    if (slot.chunk != out.chunk + 1) {
        slot.chunk = out.chunk + 1;
        slot.slices_left = slices;
        out.finishes = out.chunk >= chunks_under_way;
    }
    return true;
}

inline status staged_pipeline::pass(staged_work& work, const slice_of_chunk& item) {
    const std::uint32_t number = static_cast<std::uint32_t>(item.chunk % chunks_under_way);
    room& slot = rooms_[number];
    if (cudaEventSynchronize(slot.done) != cudaSuccess) return cuda_error();
    // The chunk is not started before this slice is passed on, so what finish needs is not
    // overwritten.
    if (item.finishes)
        if (status s = work.finish(item.chunk - chunks_under_way, number); !s) return s;
    slice_place at{};
    if (status s = work.read(item.chunk, item.slice, slot.pinned, at); !s) return s;
    if (cudaMemcpyAsync(slot.there + at.offset, slot.pinned + at.offset, at.bytes,
                        cudaMemcpyHostToDevice, slot.stream) != cudaSuccess)
        return cuda_error();
    std::lock_guard lock(mutex_);
    if (--slot.slices_left != 0) return {};
    // All copies are in the stream before what is started.
    if (!work.start(item.chunk, number, slot.there, slot.stream) ||
        cudaEventRecord(slot.done, slot.stream) != cudaSuccess)
        return cuda_error();
    slot.started = item.chunk + 1;
    started_.notify_all();
    return {};
}

inline void staged_pipeline::work_on(staged_work& work) {
    cudaSetDevice(device_);  // a new thread begins with device 0
    slice_of_chunk item{};
    while (take(work, item)) {
        status done;
        try {
            done = pass(work, item);
        } catch (const std::exception&) {       // others would wait for this slice for ever
            done = {-ENOMEM, "out of memory"};  // so short that it needs none
        }
        if (done.ok()) continue;
        std::lock_guard lock(mutex_);
        if (failed_.ok()) failed_ = std::move(done);
        started_.notify_all();
    }
}

inline status staged_pipeline::run(staged_work& work, std::uint64_t count) {
    // No thread runs yet.
    count_ = count;
    next_chunk_ = next_slice_ = 0;
    failed_ = {};
    for (room& slot : rooms_) slot.started = slot.chunk = slot.slices_left = 0;
    on_threads(threads_, [&](std::uint32_t) { work_on(work); });
    for (const room& slot : rooms_)
        if (cudaStreamSynchronize(slot.stream) != cudaSuccess) return cuda_error();
    if (status s = not_interrupted(); !s) return s;
    if (!failed_.ok()) return failed_;
    first_error errors;
    on_threads(chunks_under_way, [&](std::uint32_t number) {
        if (rooms_[number].started != 0)
            errors.note(work.finish(rooms_[number].started - 1, number));
    });
    return errors.get();
}

}  // namespace penstock::apps
