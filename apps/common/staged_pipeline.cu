#if defined(__CUDACC__)

#include "common/staged_pipeline.cuh"

#include <cerrno>

#include "common/threads.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

status staged_pipeline::allocate(std::uint64_t room_bytes, std::uint32_t threads) {
    threads_ = threads;
    for (room& slot : rooms_)
        if (cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking) != cudaSuccess ||
            cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming) != cudaSuccess ||
            cudaMallocHost(&slot.pinned, room_bytes) != cudaSuccess ||
            cudaMalloc(&slot.there, room_bytes) != cudaSuccess)
            return {-ENOMEM, std::string("--method cuda: ") +
                                 cudaGetErrorString(cudaGetLastError()) +
                                 "; free some memory of the GPU"};
    return {};
}

// Takes the next slice that no thread has, and waits until its room is free. False if none is left,
// or something failed.
bool staged_pipeline::take(const staged_work& work, slice_of_chunk& out) {
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

status staged_pipeline::pass(staged_work& work, const slice_of_chunk& item) {
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

void staged_pipeline::work_on(staged_work& work) {
    cudaSetDevice(device_);  // a new thread begins with device 0
    slice_of_chunk item{};
    while (take(work, item)) {
        const status done = pass(work, item);
        if (done.ok()) continue;
        std::lock_guard lock(mutex_);
        if (failed_.ok()) failed_ = done;
        started_.notify_all();
    }
}

status staged_pipeline::run(staged_work& work, std::uint64_t count) {
    // No thread runs yet.
    count_ = count;
    next_chunk_ = next_slice_ = 0;
    failed_ = {};
    for (room& slot : rooms_) slot.started = slot.chunk = slot.slices_left = 0;
    on_threads(threads_, [&](std::uint32_t) { work_on(work); });
    for (const room& slot : rooms_)
        if (cudaStreamSynchronize(slot.stream) != cudaSuccess) return cuda_error();
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (!failed_.ok()) return failed_;
    first_error errors;
    on_threads(chunks_under_way, [&](std::uint32_t number) {
        if (rooms_[number].started != 0)
            errors.note(work.finish(rooms_[number].started - 1, number));
    });
    return errors.get();
}

}  // namespace penstock::apps

#endif
