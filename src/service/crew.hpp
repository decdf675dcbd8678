// The helpers of a device's service threads: more threads while requests wait, none of them awake
// otherwise.
//
// Each ring belongs to a service thread. A helper takes requests of every ring. It is made when it
// is first wanted, and sleeps when it is not. There are two reasons:
//
//   stall    A thread has been in one system call since the last beat of the monitor, and requests
//            wait in its rings: a disk, a network or a lock keeps it. The monitor wakes a helper.
//            As long as a thread is stalled, awake helpers look at the rings, and one more is woken
//            whenever all that are awake have stalled too.
//   backlog  A thread has taken many requests and found more each time. It has a helper woken.
//            Where none sleeps, the monitor makes all that the processors have room for; no more
//            than that are awake for this reason.
//
// Thread-safe. Each word stands for itself, so they are relaxed: a decision from old words wakes a
// helper too late or for nothing. Requests that a stalled thread has taken stay with it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "penstock/group/doorbell.hpp"

namespace penstock::host {

class service_crew {
public:
    // `helpers`: how many there may be. `busy`: how many of them may be awake for a backlog.
    // `call_monitor`: has the monitor look at once.
    service_crew(std::uint32_t helpers, std::uint32_t busy, std::function<void()> call_monitor)
        : busy_(busy), call_monitor_(std::move(call_monitor)), bells_(helpers) {
        for (auto& bell : bells_) bell = std::make_unique<host_doorbell>();
    }

    // By a service thread.
    [[nodiscard]] bool takes_backlog() const { return busy_ != 0; }
    void ask_for_backlog() {
        if (awake_.load(std::memory_order_relaxed) + on_their_way() >= busy_) return;
        if (wake_sleeper()) for_backlog_.fetch_add(1, std::memory_order_relaxed);
        else if (lacks_for_backlog() && !wants_more_.exchange(true, std::memory_order_relaxed))
            call_monitor_();
    }
    // By a service thread that was at rest for so long that the monitor beats seldom.
    void end_rest() const { call_monitor_(); }

    // By the monitor. False: no helper sleeps, nor is one on its way since the last call.
    bool wake_for_stall() {
        if (!wake_sleeper()) return has_sleeper();
        for_stalls_.fetch_add(1, std::memory_order_relaxed);
        return true;
    }
    void say_stalled(bool stalled) { is_stalled_.store(stalled, std::memory_order_relaxed); }
    // A wish waits for the next try, and meanwhile no other one calls the monitor.
    [[nodiscard]] bool take_wish_for_more() {
        return !awaits_next_try() && wants_more_.exchange(false, std::memory_order_relaxed);
    }
    // Are there fewer than may be awake for a backlog?
    [[nodiscard]] bool lacks_for_backlog() const { return made() < busy_; }
    // The bell of the helper that is made next; null: there may be no more, or not now.
    [[nodiscard]] host_doorbell* next_bell() const {
        const std::uint32_t made = this->made();
        return made == bells_.size() || awaits_next_try() ? nullptr : bells_[made].get();
    }
    // Release: pairs with made(); a reader that counts the helper sees it whole.
    void count_made(bool for_stall) {
        (for_stall ? for_stalls_ : for_backlog_).fetch_add(1, std::memory_order_relaxed);
        made_.fetch_add(1, std::memory_order_release);
        is_refused_ = false;
    }
    // The system has no thread for it now. True for the first time since one was made.
    bool refuse(std::chrono::nanoseconds until_next_try) {
        next_try_ = std::chrono::steady_clock::now() + until_next_try;
        return !std::exchange(is_refused_, true);
    }

    // By helpers.
    [[nodiscard]] bool is_stalled() const { return is_stalled_.load(std::memory_order_relaxed); }
    void count_awake(std::int32_t change) {
        awake_.fetch_add(static_cast<std::uint32_t>(change), std::memory_order_relaxed);
    }

    [[nodiscard]] std::uint32_t most() const { return static_cast<std::uint32_t>(bells_.size()); }
    [[nodiscard]] std::uint32_t made() const { return made_.load(std::memory_order_acquire); }
    [[nodiscard]] std::uint64_t for_backlog() const {
        return for_backlog_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] std::uint64_t for_stalls() const {
        return for_stalls_.load(std::memory_order_relaxed);
    }

private:
    [[nodiscard]] bool awaits_next_try() const {
        return is_refused_ && std::chrono::steady_clock::now() < next_try_;
    }
    // False: none sleeps, but for those on their way. The look before the ring saves its fence.
    bool wake_sleeper() {
        return how_many([](auto& bell) { return bell.is_sleeping() && bell.ring(); }, 1) != 0;
    }
    [[nodiscard]] bool has_sleeper() const {
        return how_many([](auto& bell) { return bell.is_sleeping(); }, 1) != 0;
    }
    // Were rung, and have had no processor since.
    [[nodiscard]] std::uint32_t on_their_way() const {
        return how_many([](auto& bell) { return bell.is_rung(); }, UINT32_MAX);
    }
    // Of the helpers that were made, at most so many.
    template <typename Is>
    [[nodiscard]] std::uint32_t how_many(const Is& is, std::uint32_t most) const {
        std::uint32_t count = 0;
        for (std::uint32_t i = 0, end = made(); i < end && count < most; ++i)
            count += is(*bells_[i]) ? 1 : 0;
        return count;
    }

    const std::uint32_t busy_;
    const std::function<void()> call_monitor_;
    std::vector<std::unique_ptr<host_doorbell>> bells_;
    bool is_refused_ = false;  // of the monitor, as the next one: the system had no more threads
    std::chrono::steady_clock::time_point next_try_;
    std::atomic<std::uint32_t> made_{0}, awake_{0};
    std::atomic<bool> wants_more_{false}, is_stalled_{false};
    std::atomic<std::uint64_t> for_backlog_{0}, for_stalls_{0};
};

}  // namespace penstock::host
