// Brings what was written to a file to storage, and remembers if that failed.
//
// The kernel writes back later what it was given, and tells each descriptor once that this failed;
// it may have dropped the bytes, and the next sync finds nothing to do. Pages that were written are
// clean here, and some have left, so the buffer cannot write them once more. So after a failure no
// later call says that all is on storage.
//
// There is one sync of a file at a time, as the kernel would tell only one of two. Callers that
// come meanwhile share the next.
#pragma once

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "os/env.hpp"

namespace penstock::buffer {

class file_sync {
public:
    // What was written before the call is on storage. 0, or an error, and then every later call
    // gives -EIO until reset(). Of a file that is only read nothing can be lost here.
    int run(host::environment& env, int fd, bool is_writable) {
        if (!is_writable) return host::sync_file(env, fd);
        std::unique_lock hold(mutex_);
        if (error_ != 0) return -EIO;
        // One that is under way may not have what this caller wrote.
        const std::uint64_t needed = begun_ + 1;
        while (ended_ < needed && error_ == 0) {
            if (begun_ != ended_) {
                news_.wait(hold);
                continue;
            }
            ++begun_;
            hold.unlock();
            const int code = host::sync_file(env, fd);
            hold.lock();
            ++ended_;
            error_ = code;
            news_.notify_all();
        }
        return error_;
    }
    // The number is another file's; no call is under way.
    void reset() {
        const std::lock_guard hold(mutex_);
        error_ = 0;
    }

private:
    std::mutex mutex_;
    std::condition_variable news_;  // a sync has ended
    // Guarded by mutex_:
    std::uint64_t begun_ = 0, ended_ = 0;  // syncs
    int error_ = 0;                        // of the one that failed
};

}  // namespace penstock::buffer
