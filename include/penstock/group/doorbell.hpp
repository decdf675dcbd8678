// The doorbell, by which a CPU thread wakes a sleeping service thread. The caller is a thread that
// posts a request, or the service thread that watches all rings of a GPU while they are idle
// (src/service/idle_watch.hpp). GPU threads cannot ring it.
//
// Protocol: the service thread begins to sleep, looks at its ring once more, and waits. The poster
// publishes its request and then rings. Both sides have a full fence between their store and their
// load, so no wake-up is lost: a runtime whose posters all ring looks at no idle ring
// (src/os/bell_word.hpp has the steps and the proof).
#pragma once

#include "penstock/base/standard.hpp"

#if !defined(__CUDACC_RTC__)
namespace penstock {

// Its word and the system calls are in the library (src/os/host_thread.cpp), so that a kernel's
// file does not compile their headers.
struct host_doorbell {
    host_doorbell();
    ~host_doorbell();
    host_doorbell(const host_doorbell&) = delete;
    host_doorbell& operator=(const host_doorbell&) = delete;

    // Wakes the sleeper, if there is one that was not rung yet: then true. Orders what the caller
    // did before it before its look.
    bool ring();

    // Between the two a ring is remembered. What comes after begin_sleep is ordered after it, so
    // the thread looks for work then, and may wait if there is none.
    void begin_sleep();
    void end_sleep();
    [[nodiscard]] bool is_sleeping() const;
    // The sleeper was rung, and has not gone on yet.
    [[nodiscard]] bool is_rung() const;

    // Sleeps until rung, then true, or until `limit_ns` has passed. Call it after begin_sleep and a
    // last look for work. After true the thread begins or ends its sleep before it waits again.
    bool wait(std::uint64_t limit_ns);

private:
    struct parts;
    parts* const parts_;
};

}  // namespace penstock
#endif
