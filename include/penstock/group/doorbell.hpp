// The doorbell, by which a CPU thread wakes a sleeping service thread. The caller is a thread that
// posts a request, or the service thread that watches all rings while they are idle
// (src/service/idle_watch.hpp). GPU threads cannot ring it, so one service thread always looks at
// the rings; the doorbell only shortens the sleep.
//
// Protocol: the service thread sets `sleeping`, looks at its ring once more, and waits with a
// time-out. The poster publishes its request and then reads `sleeping`. If the two cross so that
// the poster misses the flag, the time-out bounds the delay; nothing depends on the doorbell for
// correctness.
#pragma once

#include "penstock/base/standard.hpp"

#if !defined(__CUDACC_RTC__)
namespace penstock {

// Its mutex, condition variable and flag are in the library (src/os/host_thread.cpp), so that a
// kernel's file does not compile their headers.
struct host_doorbell {
    host_doorbell();
    ~host_doorbell();
    host_doorbell(const host_doorbell&) = delete;
    host_doorbell& operator=(const host_doorbell&) = delete;

    // Wakes the sleeper, if there is one.
    void ring();

    // Sets and clears `sleeping`. Setting it is in one total order with the look at it in ring()
    // (sequentially consistent).
    void begin_sleep();
    void end_sleep();
    [[nodiscard]] bool is_sleeping() const;

    // Sleeps until rung, then true, or until `limit_ns` has passed. Call with `sleeping` set, after
    // a last look at the ring.
    bool wait(std::uint64_t limit_ns);

private:
    struct parts;
    parts* const parts_;
};

}  // namespace penstock
#endif
