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

// A watcher that looks rarely is woken for a thread that was asked a moment ago.
bool idle_watch::enter(const place& self, const limits& at_most) {
    std::lock_guard lock(mutex_);
    resting_.push_back({self, at_most.look_ns});
    if (watcher_ == nullptr) {
        watcher_ = self.bell;
        return true;
    }
    if (is_rare() && at_most.look_ns < at_most.rare_look_ns) watcher_->ring();
    return false;
}

void idle_watch::leave(const place& self, bool watched, bool hand_over) {
    std::lock_guard lock(mutex_);
    resting_.erase(std::find_if(resting_.begin(), resting_.end(),
                                [&](const sleeper& each) { return each.bell == self.bell; }));
    if (!watched) return;
    watcher_ = nullptr;
    is_rare_.store(false, std::memory_order_relaxed);
    if (hand_over && !resting_.empty()) resting_.back().bell->ring();
}

// Of the watcher. Returns how soon it has to look again.
std::uint64_t idle_watch::wake_asked(const place& self, const limits& at_most) {
    std::lock_guard lock(mutex_);
    std::uint64_t look_ns = at_most.look_ns;
    for (const sleeper& each : resting_) {
        look_ns = std::min(look_ns, each.look_ns);
        if (each.bell != self.bell && each.is_asked()) each.bell->ring();
    }
    is_rare_.store(look_ns >= at_most.rare_look_ns, std::memory_order_relaxed);
    return look_ns;
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
    std::uint64_t look_ns = watches ? wake_asked(self, at_most) : at_most.sleep_ns;
    bool work = self.is_asked() || ends();
    std::uint32_t naps = 0;
    for (std::uint64_t rested_ns = 0; !work && rested_ns < at_most.sleep_ns;) {
        const std::uint64_t nap_ns =
            watches ? std::min(nap_of(naps++, at_most), look_ns) : at_most.sleep_ns;
        const bool rung = self.bell->wait(nap_ns);
        rested_ns += nap_ns;
        work = rung || self.is_asked() || ends();
        if (watches) look_ns = wake_asked(self, at_most);
    }
    leave(self, watches, work);
    self.bell->end_sleep();
    return work;
}

}  // namespace penstock::host
