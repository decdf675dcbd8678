#include "service/idle_watch.hpp"

#include <algorithm>
#include <chrono>

namespace penstock::host {

namespace {

// After this many naps a nap is twice as long.
constexpr std::uint32_t naps_of_a_length = 16;

std::uint64_t nap_of(std::uint32_t naps_before, const idle_watch::limits& at_most) {
    const std::uint64_t grown_ns = at_most.first_look_ns
                                   << std::min<std::uint32_t>(naps_before / naps_of_a_length, 20);
    return std::min({grown_ns, at_most.look_ns, at_most.sleep_ns});
}

}  // namespace

bool idle_watch::enter(const place& self, const limits& at_most) {
    std::lock_guard lock(mutex_);
    resting_.push_back(self);
    if (watcher_ != nullptr) return false;
    watcher_ = self.bell;
    is_rare_.store(at_most.look_ns >= at_most.rare_look_ns, std::memory_order_relaxed);
    return true;
}

void idle_watch::leave(const place& self, bool watched, bool hand_over) {
    std::lock_guard lock(mutex_);
    resting_.erase(std::find_if(resting_.begin(), resting_.end(),
                                [&](const place& sleeper) { return sleeper.bell == self.bell; }));
    if (!watched) return;
    watcher_ = nullptr;
    is_rare_.store(false, std::memory_order_relaxed);
    if (hand_over && !resting_.empty()) resting_.back().bell->ring();
}

void idle_watch::wake_asked(const place& self) {
    std::lock_guard lock(mutex_);
    for (const place& sleeper : resting_)
        if (sleeper.bell != self.bell && sleeper.is_asked()) sleeper.bell->ring();
}

void idle_watch::wake_watcher() {
    std::lock_guard lock(mutex_);
    if (watcher_ != nullptr) watcher_->ring();
}

bool idle_watch::rest(const place& self, const limits& at_most, const std::atomic<bool>& stop,
                      const std::atomic<bool>& killed) {
    self.bell->begin_sleep();
    const bool watches = enter(self, at_most);
    const auto ends = [&] {
        return stop.load(std::memory_order_seq_cst) || killed.load(std::memory_order_seq_cst);
    };
    // Requests for other threads may have come since the last watcher looked for the last time.
    if (watches) wake_asked(self);
    bool work = self.is_asked() || ends();
    std::uint32_t naps = 0;
    for (std::uint64_t rested_ns = 0; !work && rested_ns < at_most.sleep_ns;) {
        const std::uint64_t nap_ns = watches ? nap_of(naps++, at_most) : at_most.sleep_ns;
        const bool rung = self.bell->wait(nap_ns);
        rested_ns += nap_ns;
        work = rung || self.is_asked() || ends();
        if (watches) wake_asked(self);
    }
    leave(self, watches, work);
    self.bell->end_sleep();
    return work;
}

}  // namespace penstock::host
