// How a CPU thread that posts a request wakes a service thread that went to sleep. GPU threads have no way to do that,
// so a service thread never sleeps longer than its poll interval; the doorbell only shortens the nap.
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
        if (!sleeping.load(std::memory_order_acquire)) return;
        {
            std::lock_guard lock(mutex);
            pending = true;
        }
        rung.notify_one();
    }

    // Sleeps until rung or until `limit` has passed. Call with `sleeping` set, after a last look at the ring.
    void wait(std::chrono::nanoseconds limit) {
        std::unique_lock lock(mutex);
        rung.wait_for(lock, limit, [this] { return pending; });
        pending = false;
    }
};

}  // namespace penstock
