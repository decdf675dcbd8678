// Waiting for work that a device has under way, beside stream captures of the program.
//
// To synchronise a device or a context, or to record an event of a whole context, does not go
// together with captures: while any thread captures a stream of the device, in any mode, such a
// call fails and makes the capture invalid. No call tells whether some stream is being captured, so
// the library makes none of these. It waits in two ways that captures allow to a relaxed thread
// (device_guard):
//  (1) Verbs of tables are noted by an event on their stream, and the event is waited for. It is
//      recorded outside of captures only.
//  (2) For all else that the device has, such as kernels of the program, launches of graphs and
//      kernels on memory of a region, a piece of memory is allocated and freed. To free memory that
//      cuMemAlloc gave "causes the GPU to synchronize across all executing CUDA streams" (CUDA
//      Programming Guide, stream-ordered memory allocation): any kernel may use it, so each that
//      was launched before has to end first. The guest tests (guest_wait) look whether the driver
//      does so, beside captures too. Other threads' CUDA calls may be held up meanwhile, as by each
//      cudaFree of the program. So way (1) comes first, and is all where it is known to suffice.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace penstock::host {

// Verbs that were put on streams of one device. Thread-safe; the caller has made the device current
// (device_guard).
class noted_verbs {
public:
    noted_verbs() = default;
    noted_verbs(const noted_verbs&) = delete;
    noted_verbs& operator=(const noted_verbs&) = delete;

    // After a verb was put on the stream.
    void note(cudaStream_t stream);
    // Until the verbs have ended that were noted before. 0, or a negative errno: some may still
    // run.
    [[nodiscard]] int wait();
    // Are there verbs that no event tells of? A graph that contains one may be launched at any
    // time.
    [[nodiscard]] bool are_incomplete() const { return incomplete_; }
    // To be called before it is destroyed.
    void end();

private:
    // The last verb on a stream. The handle of a stream that ended may come again; its number does
    // not.
    struct mark {
        unsigned long long stream = 0;
        CUevent event = nullptr;
    };
    bool record(cudaStream_t stream);
    CUevent event_for(unsigned long long stream);

    std::mutex mutex_;
    std::vector<mark> marks_;  // guarded by mutex_; it grows only, and events live until end()
    std::atomic<bool> incomplete_{false};
};

// Until all work has ended that was put on the device whose context is current. 0, also if it has
// ended by a fault. -ENOMEM or -EBUSY, after ten seconds: some may still run.
int wait_for_current_device();

}  // namespace penstock::host
