// Keeps operations of programs out of a file while changes of regions come home. Who closes it waits for those that are inside; those that come meanwhile wait until
// it is opened. So operations that overlap without end cannot keep it open. Each wait lasts as long as reads and writes of the file that are under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace penstock::region {

class program_gate {
public:
    void enter() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !closed_; });
        ++inside_;
    }
    void leave() {
        std::lock_guard lock(mutex_);
        if (--inside_ == 0) changed_.notify_all();
    }
    // By one at a time.
    void close() {
        std::unique_lock lock(mutex_);
        closed_ = true;
        changed_.wait(lock, [&] { return inside_ == 0; });
    }
    void open() {
        std::lock_guard lock(mutex_);
        closed_ = false;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t inside_ = 0;
    bool closed_ = false;
};

}  // namespace penstock::region
