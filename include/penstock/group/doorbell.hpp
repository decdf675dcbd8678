// How a CPU thread wakes a service thread that went to sleep: one that posts a request, or the service thread that watches the
// rings of all while they are idle (src/host/idle_watch.hpp). GPU threads have no way to do that, so somebody always
// looks; the doorbell only shortens the nap.
//
// Protocol: the service thread sets `sleeping`, looks at its ring once more, and waits with a time-out. The poster
// publishes its request and then reads `sleeping`. If the two cross so that the poster misses the flag, the time-out
// bounds the delay; nothing depends on the doorbell for correctness.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace penstock {

struct host_doorbell {
    std::atomic<bool> sleeping{false};
    std::mutex mutex;
    std::condition_variable rung;
    bool pending = false;  // guarded by mutex

    void ring() {
        if (!sleeping.load(std::memory_order_seq_cst)) return;
        {
            std::lock_guard lock(mutex);
            pending = true;
        }
        rung.notify_one();
    }

    // Sleeps until rung, then true, or until `limit` has passed. Call with `sleeping` set, after a last look at the ring.
    bool wait(std::chrono::nanoseconds limit) {
        std::unique_lock lock(mutex);
        const bool was_rung = rung.wait_for(lock, limit, [this] { return pending; });
        pending = false;
        return was_rung;
    }
};

}  // namespace penstock
