// Answers to requests that need the kernel to do something with its pages of a file first.
//
// For that the kernel may send requests of its own (it writes changed pages back) or wait for pages that others have asked
// for, and the threads that serve must be free to answer. So a thread apart asks it, and answers then.
//
// Two things are done so. A time stamp, say, is set after what programs have stored to mappings of the file is in it, since
// a page that is written back later would set it anew; fsync will not do, as the request holds the lock that it takes. And
// the bytes of a file that claims to be empty are told before a program has it open (files.cpp).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "mount/fuse_api.hpp"

namespace penstock::mount {

// Thread-safe, but for end().
class late_answers {
public:
    explicit late_answers(fuse_session* session) : session_(session) {}
    ~late_answers() { end(); }
    late_answers(const late_answers&) = delete;
    late_answers& operator=(const late_answers&) = delete;

    // Each takes the answer over. False: it does not, for lack of memory or threads or because all is ending; the caller
    // answers at once.

    // The kernel gives up its pages of the file, the changed ones after they are written back. Later stores get pages anew.
    bool after_stores(std::uint64_t number, std::function<void()> answer);
    // The kernel takes these as the file's first bytes, and its size as at least so much.
    bool after_telling(std::uint64_t number, std::vector<char> bytes, std::function<void()> answer);

    // Gives the answers that were taken over, for which the session must still be served, and takes over no more.
    void end();

private:
    struct item {
        std::uint64_t number = 0;
        std::vector<char> bytes;  // none: stores
        std::function<void()> answer;
    };
    bool put(item&& next);
    void serve();

    fuse_session* const session_;
    std::mutex lock_;
    std::condition_variable changed_;
    // Guarded by lock_:
    std::deque<item> waiting_;
    std::thread worker_;  // from the first answer on
    bool is_ending_ = false;
};

}  // namespace penstock::mount
