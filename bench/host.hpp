// Measuring on the host: threads that start at one moment, and a file that lies in the cache of a
// cpu runtime as a whole.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <sched.h>
#include <thread>
#include <vector>

#include "common/threads.hpp"
#include "context.hpp"
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

struct resident_file {
    std::unique_ptr<runtime> rt;
    int fd = -1;
    // Laid out as the cache is: anonymous memory that may have huge pages.
    std::unique_ptr<std::byte, void (*)(void*)> plain{nullptr, std::free};

    status make(context& here, std::uint64_t bytes, std::uint64_t page_bytes,
                std::uint64_t worker_threads = 0) {
        if (status s = here.use_file(bytes); !s) return s;
        if (status s = here.make_runtime({.page_bytes = page_bytes,
                                          .cache_bytes = 2 * bytes,
                                          .file_bytes = bytes,
                                          .worker_threads = worker_threads},
                                         rt, fd);
            !s)
            return s;
        const auto wanted = static_cast<std::int64_t>(bytes);
        plain.reset(static_cast<std::byte*>(std::aligned_alloc(file_step_bytes, bytes)));
        if (plain == nullptr)
            return {-ENOMEM, "no memory for " + format_size(bytes) + "; give a smaller --file"};
        if (const std::int64_t got = rt->read(fd, plain.get(), wanted, 0); got != wanted)
            return incomplete(got);
        return {};
    }

    static status incomplete(std::int64_t got) {
        const int code = got < 0 ? static_cast<int>(got) : -EIO;
        return {code, "the file could not be brought into the cache: " + error_text(code) +
                          "; give a smaller --file"};
    }
};

}  // namespace penstock::bench
