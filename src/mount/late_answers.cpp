#include "mount/late_answers.hpp"

#include <new>
#include <system_error>
#include <utility>

namespace penstock::mount {

namespace {

// Items that wait for the source at one time. A further one waits for one of these.
constexpr std::size_t most_at_once = 16;

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
    if (threads_.empty()) threads_.emplace_back([this] { serve(); });
    waiting_.push_back(std::move(next));
    changed_.notify_one();
    return true;
} catch (const std::bad_alloc&) {
    return false;
} catch (const std::system_error&) {
    return false;
}

// What a program stored to a file on a server that does not answer is not written back for as long.
// So a thread that takes an item sees to it that another one is there for the next.
void late_answers::serve() {
    for (std::unique_lock hold(lock_);;) {
        ++idle_;
        changed_.wait(hold, [&] { return is_ending_ || !waiting_.empty(); });
        --idle_;
        if (waiting_.empty()) return;
        item next = std::move(waiting_.front());
        waiting_.pop_front();
        if (idle_ == 0) add_thread();
        hold.unlock();
        ask_kernel(session_, next.number, next.bytes);
        next.answer();
        hold.lock();
    }
}

// With lock_. Where there is none to be had, those that are there do the work.
void late_answers::add_thread() try {
    if (threads_.size() < most_at_once && !is_ending_) threads_.emplace_back([this] { serve(); });
} catch (const std::bad_alloc&) {
} catch (const std::system_error&) {
}

void late_answers::end() {
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
