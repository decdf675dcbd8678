// Threads for requests that the source cannot answer yet.
//
// A program may open a file that another program holds by a lease, which can take 45 seconds, or
// read a file of /proc that gives no bytes until something happens. A serving thread would be held
// up for as long, and a few such programs would stop the mount for all. So a serving thread only
// tries, in a way that does not wait, and leaves the request to a thread that knows when to try
// again. An attempt can wait all the same, where the file's server has stopped meanwhile. So other
// threads make the attempts (patient_threads).
//
// A program that is killed or interrupted meanwhile gets EINTR. Without an answer the kernel would
// not let it end.
#pragma once

#include <fuse_lowlevel.h>

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "mount/patient_threads.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

// Thread-safe, but for end().
class waiting_requests {
public:
    // Does what is wanted and answers. False: not yet, and nothing was done.
    using attempt = std::function<bool()>;

    waiting_requests() = default;
    ~waiting_requests() { end(); }
    waiting_requests(const waiting_requests&) = delete;
    waiting_requests& operator=(const waiting_requests&) = delete;

    // Takes the request over after an attempt that failed. `fd` is ready for reading when another
    // one may succeed; -1: that cannot be told, and attempts come after pauses. False: no memory,
    // no thread, or end() was called; the caller answers.
    bool add(fuse_req_t request, int fd, attempt again);

    // Answers all that wait with ENOTCONN and takes no more. The session must still be there.
    void end();

private:
    using clock = std::chrono::steady_clock;
    struct item {
        fuse_req_t request = nullptr;
        int fd = -1;
        attempt again;
        clock::time_point since, next;  // the next attempt comes not before
        clock::duration pause{};
    };

    static void wake(fuse_req_t, void* self);
    void serve();
    bool take_new(std::list<item>& all);
    static bool is_to_end(const item& each, clock::time_point now);
    void wait(const std::list<item>& all, std::vector<bool>& ready) const;
    void hand_out(std::list<item>& due);
    void make_attempt();

    std::mutex lock_;
    // Guarded by lock_:
    std::list<item> new_, due_;  // due: each has a make_attempt() that was put
    std::thread worker_;         // from the first request on
    bool is_ending_ = false;
    host::owned_fd news_;  // an eventfd, from the first request on
    patient_threads attempting_;
};

}  // namespace penstock::mount
