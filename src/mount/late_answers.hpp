// Threads that answer requests for which the kernel must first do something with its pages of a
// file: one, and more while the source keeps that one waiting.
//
// Meanwhile the kernel may send requests of its own (it writes changed pages back) or wait for
// pages that other programs asked for. The serving threads must be free to answer those, so these
// threads ask the kernel, and then answer.
//
// after_stores: a program sets a time stamp after it stored to a mapping. A page that is written
// back later would set the time anew. fsync is no help: it takes the lock that the request holds.
// after_telling: a file of /proc claims to be empty; the kernel gets its bytes before the program
// has it open (files.cpp).
#pragma once

#include <fuse_lowlevel.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::mount {

// Thread-safe, but for end().
class late_answers {
public:
    explicit late_answers(fuse_session* session) : session_(session) {}
    ~late_answers() { end(); }
    late_answers(const late_answers&) = delete;
    late_answers& operator=(const late_answers&) = delete;

    // Both take the answer over. False: no memory, no thread, or end() was called; the caller
    // answers at once.

    // Has the kernel write changed pages of the file back and give all pages up. Later stores get
    // new pages.
    bool after_stores(std::uint64_t number, std::function<void()> answer);
    // Gives the kernel the first bytes of the file; its size is at least as much then.
    bool after_telling(std::uint64_t number, std::vector<char> bytes, std::function<void()> answer);

    // Gives the answers that were taken over and takes no more. The session must still be served.
    void end();

private:
    struct item {
        std::uint64_t number = 0;
        std::vector<char> bytes;  // none: stores
        std::function<void()> answer;
    };
    bool put(item&& next);
    void serve();
    void add_thread();

    fuse_session* const session_;
    std::mutex lock_;
    std::condition_variable changed_;
    // Guarded by lock_:
    std::deque<item> waiting_;
    std::vector<std::thread> threads_;  // from the first answer on
    unsigned idle_ = 0;
    bool is_ending_ = false;
};

}  // namespace penstock::mount
