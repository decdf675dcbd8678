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

// True: this thread watches. A watcher that naps for longer than a new sleeper bears is woken: it
// leaves, and whichever thread watches next begins with short naps. So the length of the first nap
// is known as soon as there is a watcher.
bool idle_watch::enter(const place& self, const limits& at_most) {
    std::lock_guard lock(mutex_);
    resting_.push_back({self, at_most.look_ns});
    if (watcher_ == nullptr) {
        watcher_ = self.bell;
        // Requests for other threads may have come since the last watcher looked for the last time.
        wake_asked(self, at_most, 0);
        return true;
    }
    if (at_most.first_look_ns < nap_ns_) watcher_->ring();
    return false;
}

void idle_watch::leave(const place& self, bool watched, bool hand_over) {
    std::lock_guard lock(mutex_);
    resting_.erase(std::find_if(resting_.begin(), resting_.end(),
                                [&](const sleeper& each) { return each.bell == self.bell; }));
    if (!watched) return;
    watcher_ = nullptr;
    pace_.store(looks::often, std::memory_order_relaxed);
    if (hand_over && !resting_.empty()) resting_.back().bell->ring();
}

// Of the watcher, under the lock. Chooses how long it naps after so many naps.
void idle_watch::wake_asked(const place& self, const limits& at_most, std::uint32_t naps_before) {
    nap_ns_ = nap_of(naps_before, at_most);
    for (const sleeper& each : resting_) {
        nap_ns_ = std::min(nap_ns_, each.look_ns);
        if (each.bell != self.bell && each.is_asked()) each.bell->ring();
    }
    pace_.store(nap_ns_ >= at_most.rarest_look_ns ? looks::rarest
                : nap_ns_ >= at_most.rare_look_ns ? looks::rare
                                                  : looks::often,
                std::memory_order_relaxed);
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
    std::uint32_t naps = 0;
    bool work = self.is_asked() || ends();
    for (std::uint64_t rested_ns = 0; !work && rested_ns < at_most.sleep_ns;) {
        const std::uint64_t nap_ns = watches ? nap_ns_ : at_most.sleep_ns;
        const bool rung = self.bell->wait(nap_ns);
        rested_ns += nap_ns;
        work = rung || self.is_asked() || ends();
        if (!watches) continue;
        std::lock_guard lock(mutex_);
        wake_asked(self, at_most, ++naps);
    }
    leave(self, watches, work);
    self.bell->end_sleep();
    return work;
}

}  // namespace penstock::host
