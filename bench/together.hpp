// Threads of the host that start at one moment, each on a processor of its own.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <sched.h>
#include <thread>
#include <vector>

#include "result.hpp"
#include "common/threads.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::bench {

// Seconds for work(thread) on each of `threads` threads, from the moment all of them stand ready
// until the last is done: what it takes to make threads and to spread them is not the work's.
template <typename Work>
double seconds_together(std::uint64_t threads, const Work& work) {
    std::barrier ready(static_cast<std::ptrdiff_t>(threads));
    std::vector<double> began(threads), ended(threads);
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        cpu_set_t mine;
        CPU_ZERO(&mine);
        CPU_SET(t % std::max(1u, std::thread::hardware_concurrency()), &mine);
        ::sched_setaffinity(0, sizeof mine, &mine);
        ready.arrive_and_wait();
        began[t] = now_s();
        work(t);
        ended[t] = now_s();
    });
    return *std::max_element(ended.begin(), ended.end()) -
           *std::min_element(began.begin(), began.end());
}

// The same for visit(thread, number) with `rounds` random numbers below `count` on each thread.
template <typename Visit>
double seconds_at_random(std::uint64_t threads, std::uint64_t rounds, std::uint64_t count,
                         const Visit& visit) {
    return seconds_together(threads, [&](std::uint64_t t) {
        for (std::uint64_t i = 0; i < rounds; ++i) visit(t, mix64(t * rounds + i) % count);
    });
}

}  // namespace penstock::bench
