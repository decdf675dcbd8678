#include "mount/patient_threads.hpp"

#include <new>
#include <system_error>
#include <utility>

namespace penstock::mount {

void patient_threads::begin(const std::function<void()>& prepare) {
    const std::lock_guard hold(lock_);
    threads_.emplace_back([this, prepare] {
        prepare();
        serve();
    });
}

bool patient_threads::put(std::function<void()> work) try {
    {
        const std::lock_guard hold(lock_);
        if (is_ending_) return false;
        if (threads_.empty()) threads_.emplace_back([this] { serve(); });
        waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
} catch (const std::bad_alloc&) {
    return false;
} catch (const std::system_error&) {
    return false;
}

// A thread that takes work sees to it that another one is there for the next.
void patient_threads::serve() {
    for (std::unique_lock hold(lock_);;) {
        ++idle_;
        changed_.wait(hold, [&] { return is_ending_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty()) return;
        const std::function<void()> work = std::move(waiting_.front());
        waiting_.pop_front();
        if (idle_ == 0) add_thread();
        hold.unlock();
        work();
        hold.lock();
    }
}

// With lock_. Where there is none to be had, those that are there do the work.
void patient_threads::add_thread() try {
    if (threads_.size() < most_at_once && !is_ending_) threads_.emplace_back([this] { serve(); });
} catch (const std::bad_alloc&) {
} catch (const std::system_error&) {
}

void patient_threads::end() {
    std::vector<std::thread> ending;
    {
        const std::lock_guard hold(lock_);
        is_ending_ = true;
        ending = std::exchange(threads_, {});
    }
    changed_.notify_all();
    for (std::thread& each : ending) each.join();
}

}  // namespace penstock::mount
