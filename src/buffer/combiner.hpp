// What many threads ask for is done by one of them at a time, for all that have asked meanwhile: a batch.
//
// A request that finds nobody at work is done at once, with what else has come by then; those that come while a batch is done are the next. With `wait` the first of a batch waits that long
// for others, unless `most` are there before: larger batches for later answers (Zhong and He, ICCS 2011, 3: the threshold and the epoch of batched page misses).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::buffer {

// Request has a member `bool done`, which is the combiner's.
template <typename Request>
class combiner {
public:
    // `requests`: at a time, at most.
    combiner(std::size_t requests, std::size_t most, std::chrono::microseconds wait) : most_(most), wait_(wait) {
        waiting_.reserve(requests);
        batch_.reserve(requests);
    }

    // Returns when the requests were done: by handle(batch), called by one thread at a time with requests in the order in which they came. Thread-safe; takes as long as the batches before it.
    template <typename Handle>
    void submit(Request* const* some, std::size_t count, const Handle& handle) {
        if (count == 0) return;
        std::unique_lock hold(mutex_);
        for (std::size_t i = 0; i < count; ++i) {
            some[i]->done = false;
            waiting_.push_back(some[i]);
        }
        const Request& last = *some[count - 1];  // and so the last to be done
        if (waiting_.size() >= most_) enough_.notify_one();
        while (!last.done) {
            if (at_work_) {
                await_batch(hold);
                continue;
            }
            at_work_ = true;
            if (wait_.count() != 0) enough_.wait_for(hold, wait_, [&] { return waiting_.size() >= most_; });
            const auto taken = static_cast<std::ptrdiff_t>(std::min(waiting_.size(), most_));
            batch_.assign(waiting_.begin(), waiting_.begin() + taken);
            waiting_.erase(waiting_.begin(), waiting_.begin() + taken);
            hold.unlock();
            handle(batch_);
            hold.lock();
            for (Request* const each : batch_) each->done = true;
            at_work_ = false;
            ++batches_;
            done_.notify_all();
        }
    }
    // Just now; only a hint.
    [[nodiscard]] bool is_idle() const { return !at_work_; }

private:
    // To sleep and be woken takes as long as a batch of a device does, so a while is spent looking first.
    void await_batch(std::unique_lock<std::mutex>& hold) {
        constexpr auto longest_look = std::chrono::microseconds(50);
        const std::uint64_t seen = batches_;
        hold.unlock();
        const auto until = std::chrono::steady_clock::now() + longest_look;
        while (batches_ == seen && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        hold.lock();
        done_.wait(hold, [&] { return batches_ != seen; });
    }

    const std::size_t most_;
    const std::chrono::microseconds wait_;
    std::mutex mutex_;
    std::condition_variable done_, enough_;
    std::vector<Request*> waiting_, batch_;  // guarded by mutex_; batch_ is whoever's who is at work
    std::atomic<bool> at_work_{false};
    std::atomic<std::uint64_t> batches_{0};  // that came to their end; grows under the lock
};

}  // namespace penstock::buffer
