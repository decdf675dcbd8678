#include "mount/after_stores.hpp"

#include <new>
#include <system_error>
#include <utility>

namespace penstock::mount {

bool after_stores::put(std::uint64_t number, std::function<void()> work) try {
    const std::lock_guard hold(lock_);
    if (is_ending_) return false;
    if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
    waiting_.push_back({number, std::move(work)});
    changed_.notify_one();
    return true;
} catch (const std::bad_alloc&) {
    return false;
} catch (const std::system_error&) {
    return false;
}

void after_stores::serve() {
    for (std::unique_lock hold(lock_);;) {
        changed_.wait(hold, [&] { return is_ending_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        const item next = std::move(waiting_.front());
        waiting_.pop_front();
        hold.unlock();
        // What could not be written back is an error of the stores, and told to their msync or close.
        fuse_lowlevel_notify_inval_inode(session_, next.number, 0, 0);
        next.work();
        hold.lock();
    }
}

void after_stores::end() {
    {
        const std::lock_guard hold(lock_);
        is_ending_ = true;
    }
    changed_.notify_one();
    if (worker_.joinable()) worker_.join();
}

}  // namespace penstock::mount
