// Work on a file that comes after what programs have stored to mappings of it: setting a time stamp, say, which a page that
// is written back later would set anew.
//
// The kernel writes pages back by requests of their own, which the threads that serve must be free to answer; and a request
// for the work holds a lock of the file that fsync would take. So a thread apart has the kernel give up its pages of the
// file, which writes back the changed ones and waits for the answers, and does the work then. Later stores get pages anew.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "mount/fuse_api.hpp"

namespace penstock::mount {

// Thread-safe, but for end().
class after_stores {
public:
    explicit after_stores(fuse_session* session) : session_(session) {}
    ~after_stores() { end(); }
    after_stores(const after_stores&) = delete;
    after_stores& operator=(const after_stores&) = delete;

    // Takes the work over, which answers its request. False: it does not, for lack of memory or threads or because all is
    // ending; the caller does the work at once.
    bool put(std::uint64_t number, std::function<void()> work);

    // Does what was taken over, which the session must still be served for, and takes over no more.
    void end();

private:
    struct item {
        std::uint64_t number = 0;
        std::function<void()> work;
    };
    void serve();

    fuse_session* const session_;
    std::mutex lock_;
    std::condition_variable changed_;
    // Guarded by lock_:
    std::deque<item> waiting_;
    std::thread worker_;  // from the first work on
    bool is_ending_ = false;
};

}  // namespace penstock::mount
