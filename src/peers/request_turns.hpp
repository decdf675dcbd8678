// Whose turn it is to use what reads for programs are answered with: one request's that changes it
// (moves pages of regions of a file; adds or takes away a runtime), or that of any number of reads.
// Requests wait; reads are refused while a request is under way or waits, so they neither wait for
// one nor keep one waiting for long.
//
// A lockable for std::lock_guard (requests) and std::shared_lock with std::try_to_lock (reads).
#pragma once

#include <atomic>
#include <shared_mutex>

namespace penstock::host {

class request_turns {
public:
    void lock() {
        ++wanted_;
        turns_.lock();
        --wanted_;
    }
    void unlock() { turns_.unlock(); }
    bool try_lock_shared() { return wanted_ == 0 && turns_.try_lock_shared(); }
    void unlock_shared() { turns_.unlock_shared(); }
    void lock_shared() = delete;

private:
    std::atomic<int> wanted_{0};
    std::shared_mutex turns_;
};

}  // namespace penstock::host
