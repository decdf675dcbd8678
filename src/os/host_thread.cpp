// The host half of a lane that needs the operating system: clock, yield, nap, and the doorbell of a
// service thread.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "penstock/group/doorbell.hpp"
#include "penstock/group/lane.hpp"

namespace penstock {

namespace detail {

std::uint64_t host_now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

void host_yield() { std::this_thread::yield(); }

void host_nap() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

}  // namespace detail

struct host_doorbell::parts {
    std::atomic<bool> sleeping{false};
    std::mutex mutex;
    std::condition_variable rung;
    bool pending = false;  // guarded by mutex
};

host_doorbell::host_doorbell() : parts_(new parts) {}
host_doorbell::~host_doorbell() { delete parts_; }

void host_doorbell::begin_sleep() { parts_->sleeping.store(true, std::memory_order_seq_cst); }
void host_doorbell::end_sleep() { parts_->sleeping.store(false, std::memory_order_relaxed); }
bool host_doorbell::is_sleeping() const { return parts_->sleeping.load(std::memory_order_seq_cst); }

void host_doorbell::ring() {
    if (!is_sleeping()) return;
    {
        const std::lock_guard lock(parts_->mutex);
        parts_->pending = true;
    }
    parts_->rung.notify_one();
}

bool host_doorbell::wait(std::uint64_t limit_ns) {
    std::unique_lock lock(parts_->mutex);
    const bool was_rung = parts_->rung.wait_for(lock, std::chrono::nanoseconds(limit_ns),
                                                [this] { return parts_->pending; });
    parts_->pending = false;
    return was_rung;
}

}  // namespace penstock
