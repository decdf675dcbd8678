#include "mount/late_answers.hpp"

#include <new>
#include <system_error>
#include <utility>

namespace penstock::mount {

namespace {

// Errors do not change the answer: msync or close tells a program that its stores failed, and a
// kernel that takes no bytes goes on with the size it had.
void ask_kernel(fuse_session* session, std::uint64_t number, std::vector<char>& bytes) {
    if (bytes.empty()) {
        fuse_lowlevel_notify_inval_inode(session, number, 0, 0);
        return;
    }
    fuse_bufvec from = FUSE_BUFVEC_INIT(bytes.size());
    from.buf[0].mem = bytes.data();
    fuse_lowlevel_notify_store(session, number, 0, &from, static_cast<fuse_buf_copy_flags>(0));
}

}  // namespace

bool late_answers::after_stores(std::uint64_t number, std::function<void()> answer) {
    return put({number, {}, std::move(answer)});
}

bool late_answers::after_telling(std::uint64_t number, std::vector<char> bytes,
                                 std::function<void()> answer) {
    return put({number, std::move(bytes), std::move(answer)});
}

bool late_answers::put(item&& next) try {
    const std::lock_guard hold(lock_);
    if (is_ending_) return false;
    if (!worker_.joinable()) worker_ = std::thread([this] { serve(); });
    waiting_.push_back(std::move(next));
    changed_.notify_one();
    return true;
} catch (const std::bad_alloc&) {
    return false;
} catch (const std::system_error&) {
    return false;
}

void late_answers::serve() {
    for (std::unique_lock hold(lock_);;) {
        changed_.wait(hold, [&] { return is_ending_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        item next = std::move(waiting_.front());
        waiting_.pop_front();
        hold.unlock();
        ask_kernel(session_, next.number, next.bytes);
        next.answer();
        hold.lock();
    }
}

void late_answers::end() {
    {
        const std::lock_guard hold(lock_);
        is_ending_ = true;
    }
    changed_.notify_one();
    if (worker_.joinable()) worker_.join();
}

}  // namespace penstock::mount
