// The yields of one thread that waits, where other programs may be busy.
//
// Beside a busy program of ten yields one takes 4 ms, a slice of that program's time. A thread that
// sleeps and is woken comes before it: a nap of 20 us takes 90
// (bench/results/cpu/2026-11-29-busy.txt). So after a yield that took a slice the thread sleeps for
// some rounds instead, those of later waits too.
#pragma once

#include <cstdint>
#include <thread>

#include "penstock/group/lane.hpp"

namespace penstock::host {

class patient_yield {
public:
    // True: a program is busy here, and the caller sleeps in this round.
    bool must_sleep() {
        if (sleeps_to_come_ == 0) return false;
        --sleeps_to_come_;
        return true;
    }

    void yield() {
        const std::uint64_t begun_ns = penstock::detail::host_now_ns();
        std::this_thread::yield();
        if (penstock::detail::host_now_ns() - begun_ns > slice_ns) sleeps_to_come_ = sleeps;
    }

private:
    static constexpr std::uint64_t slice_ns = 2'000'000;
    static constexpr std::uint32_t sleeps = 256;

    std::uint32_t sleeps_to_come_ = 0;
};

}  // namespace penstock::host
