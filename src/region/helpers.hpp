// Threads that help a caller move pages of a region, kept from one request to the next: a thread
// that is made anew costs as much as moving some pages, and on a GPU its first call of the driver
// does again.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::region {

class helpers {
public:
    helpers() = default;
    ~helpers() {
        {
            const std::lock_guard hold(lock_);
            ends_ = true;
        }
        begins_.notify_all();
        for (std::thread& one : threads_) one.join();
    }
    helpers(const helpers&) = delete;
    helpers& operator=(const helpers&) = delete;

    // work(0) by the caller, and work(i) for other i below `count`, each once at most, by as many
    // threads as begin before the caller is through: so each takes pieces of what there is to do
    // until there are none, and the caller waits for no thread that had not begun. Returns when all
    // have returned. By one caller at a time; work throws nothing.
    void run(unsigned count, const std::function<void(unsigned)>& work) {
        make(count);
        {
            const std::lock_guard hold(lock_);
            work_ = &work;
            next_ = 1;
            end_ = count;
        }
        if (count > 1) begins_.notify_all();
        work(0);
        std::unique_lock hold(lock_);
        end_ = 0;
        all_ended_.wait(hold, [&] { return working_ == 0; });
    }

private:
    void make(unsigned count) {
        if (threads_.size() + 1 >= count) return;
        // Signals are the program's.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            threads_.reserve(count - 1);
            while (threads_.size() + 1 < count) threads_.emplace_back([this] { help(); });
        } catch (const std::exception&) {  // no more threads or memory: those that are there do it
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    void help() {
        std::unique_lock hold(lock_);
        for (;;) {
            begins_.wait(hold, [&] { return ends_ || next_ < end_; });
            if (ends_) return;
            const std::function<void(unsigned)>& work = *work_;
            const unsigned number = next_++;
            ++working_;
            hold.unlock();
            work(number);
            hold.lock();
            if (--working_ == 0) all_ended_.notify_one();
        }
    }

    std::vector<std::thread> threads_;  // the caller's
    std::mutex lock_;
    std::condition_variable begins_, all_ended_;
    // Guarded by lock_:
    const std::function<void(unsigned)>* work_ = nullptr;
    unsigned next_ = 0, end_ = 0;  // numbers that are still to be had: none between calls
    unsigned working_ = 0;
    bool ends_ = false;
};

}  // namespace penstock::region
