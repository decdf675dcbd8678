#include "region/request_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

namespace penstock::region {

namespace {
using clock = std::chrono::steady_clock;
}

bool request_end::is_done() const {
    const std::lock_guard lock(mutex_);
    return is_set_;
}

std::int64_t request_end::wait() const {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return is_set_; });
    return result_;
}

void request_end::set(std::int64_t result) {
    {
        const std::lock_guard lock(mutex_);
        if (is_set_) return;
        result_ = result;
        is_set_ = true;
    }
    done_.notify_all();
}

std::shared_ptr<request_end> ended(std::int64_t result) {
    auto out = std::make_shared<request_end>();
    out->set(result);
    return out;
}

request_thread::~request_thread() {
    refuse();
    stop();
}

std::shared_ptr<request_end> request_thread::add(void* stream, work todo) {
    auto end = std::make_shared<request_end>();
    const std::int64_t code = enter(stream, std::move(todo), end);
    if (code != 0) end->set(code);
    return end;
}

// Signals belong to the program's own threads.
void request_thread::start() {
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
        watch_ = std::thread([this] { watch(); });
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

std::int64_t request_thread::enter(void* stream, work&& todo,
                                   const std::shared_ptr<request_end>& end) try {
    const std::lock_guard call(calls_);
    if (refuses_) return -EBADF;
    if (turns_ == nullptr) {
        int code = 0;
        turns_ = make_turns_(code);
        if (turns_ == nullptr) return code;
    }
    if (!watch_.joinable()) start();
    // Once the stream waits, the request must be in the queue; so room is taken first.
    const std::uint32_t number = last_number_ + 1;
    {
        const std::lock_guard lock(queue_);
        waiting_.push_back({number, std::move(todo), end, {}});
    }
    if (const int code = turns_->begin(number, stream); code != 0) {
        {
            const std::lock_guard lock(queue_);
            waiting_.pop_back();
        }
        fewer_wait_.notify_all();
        return code;
    }
    last_number_ = number;
    bool is_behind_a_late_one = false;
    {
        const std::lock_guard lock(queue_);
        entered_ = number;
        is_behind_a_late_one = !waiting_.empty() && is_up_to(waiting_.front().number, ended_);
    }
    if (is_behind_a_late_one) may_watch_.notify_one();
    may_serve_.notify_one();
    return 0;
} catch (const std::bad_alloc&) {
    return -ENOMEM;
} catch (const std::system_error&) {
    return -EAGAIN;
}

void request_thread::serve() {
    std::unique_lock lock(queue_);
    for (;;) {
        may_serve_.wait(lock, [&] { return ends_ || is_entered(); });
        if (!is_entered()) return;
        request& next = waiting_.front();
        const bool has_come = next.came.has_value();
        lock.unlock();
        std::int64_t result = has_come ? 0 : turns_->reached(next.number);
        if (result == 0) {
            if (!has_come && turns_->has_come(next.number)) {
                lock.lock();
                next.came = clock::now();
                lock.unlock();
                may_watch_.notify_one();
            }
            result = next.todo();
        }
        lock.lock();
        let_go(next);
        lock.unlock();
        next.end->set(result);
        lock.lock();
        waiting_.pop_front();
        fewer_wait_.notify_all();
    }
}

void request_thread::let_go(const request& of) {
    if (is_up_to(of.number, ended_)) return;
    ended_ = of.number;
    turns_->end(of.number);
}

// Of the first the thread that serves notes it.
void request_thread::note_arrivals(clock::time_point now) {
    for (std::size_t i = 1; i < waiting_.size(); ++i) {
        request& next = waiting_[i];
        if (!is_up_to(next.number, entered_)) return;
        if (!next.came && turns_->has_come(next.number)) next.came = now;
    }
}

// The first that has not ended, if its end depends on time: the one that is served, once its stream
// has come, or one behind a late one. Else null.
request_thread::request* request_thread::first_to_end() {
    for (request& next : waiting_) {
        if (!is_up_to(next.number, entered_)) return nullptr;
        if (is_up_to(next.number, ended_)) continue;
        return &next == &waiting_.front() && !next.came ? nullptr : &next;
    }
    return nullptr;
}

// It makes no call of the driver. A request that ends just now is not late: the lock is held from
// the look at the time to the end.
void request_thread::watch() {
    const clock::duration step = std::clamp<clock::duration>(
        longest_ / 16, std::chrono::milliseconds(1), std::chrono::milliseconds(20));
    std::unique_lock lock(queue_);
    while (!ends_) {
        request* const next = first_to_end();
        if (next == nullptr) {
            may_watch_.wait(lock);
            continue;
        }
        const clock::time_point now = clock::now();
        note_arrivals(now);
        if (!next->came || now - *next->came < longest_) {
            const clock::duration left =
                next->came ? *next->came + longest_ - now : clock::duration::max();
            may_watch_.wait_for(lock, std::min(left, step));
            continue;
        }
        let_go(*next);
        next->end->set(-ETIMEDOUT);
        lock.unlock();
        late_();
        lock.lock();
    }
}

void request_thread::drain() {
    std::unique_lock lock(queue_);
    fewer_wait_.wait(lock, [&] { return waiting_.empty(); });
}

void request_thread::refuse() {
    {
        const std::lock_guard call(calls_);
        refuses_ = true;
    }
    drain();
}

void request_thread::allow() {
    const std::lock_guard call(calls_);
    refuses_ = false;
}

void request_thread::stop() {
    {
        const std::lock_guard lock(queue_);
        ends_ = true;
    }
    may_serve_.notify_one();
    may_watch_.notify_one();
    if (thread_.joinable()) thread_.join();
    if (watch_.joinable()) watch_.join();
    turns_.reset();
}

}  // namespace penstock::region
