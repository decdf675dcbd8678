// Chunks of files through pinned memory to a GPU, as one would write it by hand: threads read
// slices of a chunk and copy each as soon as it is read. The thread that copied the last slice
// starts the work on the chunk. Chunks have streams of their own, so reading, copying and computing
// overlap. For the baselines; only in programs with CUDA.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <mutex>
#include <string>

#include "common/gpu.cuh"
#include "penstock/error.hpp"

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

}  // namespace penstock::apps
