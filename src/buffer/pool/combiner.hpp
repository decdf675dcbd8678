// What many threads ask for is done by one of them at a time, for all that have asked meanwhile: a
// batch.
//
// A request that finds no thread at work is done at once, with what else has come by then; those
// that come while a batch is done are the next. One that is posted waits for no thread, and for the
// next batch. With `wait` the first of a batch waits that long for others, unless `most` are there
// before: larger batches for later answers (Zhong and He, ICCS 2011, 3: the threshold and the epoch
// of batched page misses).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::buffer {

// Request has members `bool done`, which is the combiner's, and `int code`, which is -ENOMEM where
// the handler threw: then it was not done, or not wholly.
template <typename Request>
class combiner {
public:
    using batch = std::vector<Request*>;
    using handler = std::function<void(const batch&)>;

    // `requests`: at a time, at most. `handle`: does a batch; it is called by one thread at a time,
    // with requests in the order in which they came.
    combiner(std::size_t requests, std::size_t most, std::chrono::microseconds wait, handler handle)
        : most_(most), wait_(wait), handle_(std::move(handle)) {
        waiting_.reserve(requests);
        batch_.reserve(std::max<std::size_t>(requests, 1));
    }

    // Returns when the requests were done. Thread-safe; takes as long as the batches before it.
    void submit(Request* const* some, std::size_t count) {
        if (count == 0) return;
        std::unique_lock hold(mutex_);
        // Nothing may throw once another thread can see a request of this one.
        waiting_.reserve(waiting_.size() + count);
        for (std::size_t i = 0; i < count; ++i) add(*some[i]);
        finish(hold, *some[count - 1]);  // the last to be done
    }
    void submit(Request& only) {
        Request* const asked = &only;
        submit(&asked, 1);
    }
    // Returns at once. The request belongs to the thread that does the next batch, with all that it
    // names, until finish(), or a submit() that begins later, has returned.
    void post(Request& request) {
        const std::lock_guard hold(mutex_);
        add(request);
        has_posted_ = true;
    }
    // Returns when the request, which was posted or done before, was done; else as submit().
    void finish(const Request& request) {
        std::unique_lock hold(mutex_);
        finish(hold, request);
    }
    // Whether there may be posted requests that no thread has taken: it is true once one was
    // posted, until then.
    [[nodiscard]] bool has_posted() const { return has_posted_; }
    // For the thread that may need what another thread has posted: does a batch if any request was
    // posted, or waits for the one that is being done.
    void help() {
        if (!has_posted_) return;
        std::unique_lock hold(mutex_);
        if (at_work_) await_batch(hold);
        else if (!waiting_.empty()) do_batch(hold);
    }
    // Just now; only a hint.
    [[nodiscard]] bool is_idle() const { return !at_work_; }

private:
    using lock = std::unique_lock<std::mutex>;

    void add(Request& request) {
        request.done = false;
        waiting_.push_back(&request);
        if (waiting_.size() >= most_) enough_.notify_one();
    }
    void finish(lock& hold, const Request& last) {
        while (!last.done) {
            if (at_work_) await_batch(hold);
            else do_batch(hold);
        }
    }
    void do_batch(lock& hold) {
        at_work_ = true;
        if (wait_.count() != 0)
            enough_.wait_for(hold, wait_, [&] { return waiting_.size() >= most_; });
        // No more than there is room for: to ask for more could throw, and others would wait for
        // ever.
        const auto taken =
            static_cast<std::ptrdiff_t>(std::min({waiting_.size(), most_, batch_.capacity()}));
        batch_.assign(waiting_.begin(), waiting_.begin() + taken);
        waiting_.erase(waiting_.begin(), waiting_.begin() + taken);
        if (waiting_.empty()) has_posted_ = false;
        hold.unlock();
        const bool is_handled = handle();
        hold.lock();
        for (Request* const each : batch_) {
            if (!is_handled) each->code = -ENOMEM;
            each->done = true;
        }
        at_work_ = false;
        ++batches_;
        done_.notify_all();
    }
    // The batch is that of many threads, so none of them takes the exception alone.
    bool handle() {
        try {
            handle_(batch_);
            return true;
        } catch (const std::exception&) {
            return false;
        }
    }
    // To sleep and be woken takes as long as a batch of a device does, so a while is spent looking
    // first.
    void await_batch(lock& hold) {
        constexpr auto longest_look = std::chrono::microseconds(50);
        const std::uint64_t seen = batches_;
        hold.unlock();
        const auto until = std::chrono::steady_clock::now() + longest_look;
        while (batches_ == seen && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
        hold.lock();
        done_.wait(hold, [&] { return batches_ != seen; });
    }

    const std::size_t most_;
    const std::chrono::microseconds wait_;
    const handler handle_;
    std::mutex mutex_;
    std::condition_variable done_, enough_;
    std::vector<Request*> waiting_,
        batch_;  // guarded by mutex_; batch_ belongs to the thread that is at work
    std::atomic<bool> at_work_{false}, has_posted_{false};  // change under the lock
    std::atomic<std::uint64_t> batches_{0};  // that came to their end; grows under the lock
};

}  // namespace penstock::buffer
