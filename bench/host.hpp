// Measuring on the host: threads that start at one moment, and a file that lies in the cache of a
// runtime as a whole.
#pragma once

#include <algorithm>
#include <atomic>
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
        cpu_set_t processors;
        CPU_ZERO(&processors);
        CPU_SET(t % std::max(1u, std::thread::hardware_concurrency()), &processors);
        ::sched_setaffinity(0, sizeof processors, &processors);
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

// take(offset, bytes) for the pieces of a whole, each by the thread that comes first.
template <typename Take>
void take_pieces(std::atomic<std::uint64_t>& next, std::uint64_t whole, std::uint64_t piece,
                 const Take& take) {
    for (std::uint64_t at = next.fetch_add(piece); at < whole; at = next.fetch_add(piece))
        take(at, std::min(piece, whole - at));
}

inline constexpr const char* not_resident =
    "the file could not be brought into the cache (give a smaller --file)";

inline void bring_into_cache(const opened_file& file, std::uint64_t bytes) {
    require_all(file.rt->prefetch(file.fd, 0, static_cast<std::int64_t>(bytes)), bytes,
                not_resident);
}

// A file in the cache of a cpu runtime, and the same bytes in plain memory.
struct resident_file : opened_file {
    // Laid out as the cache is: anonymous memory that may have huge pages.
    std::unique_ptr<std::byte, void (*)(void*)> plain;

    resident_file(context& here, std::uint64_t bytes, std::uint64_t page_bytes,
                  std::uint64_t worker_threads = 0)
        : opened_file(open(here, bytes, page_bytes, worker_threads)),
          plain(static_cast<std::byte*>(std::aligned_alloc(file_step_bytes, bytes)), std::free) {
        if (plain == nullptr)
            throw failure(-ENOMEM,
                          "no memory for " + format_size(bytes) + "; give a smaller --file");
        require_all(rt->read(fd, plain.get(), static_cast<std::int64_t>(bytes), 0), bytes,
                    not_resident);
    }

private:
    static opened_file open(context& here, std::uint64_t bytes, std::uint64_t page_bytes,
                            std::uint64_t worker_threads) {
        here.use_file(bytes);
        return here.open({.page_bytes = page_bytes,
                          .cache_bytes = 2 * bytes,
                          .file_bytes = bytes,
                          .worker_threads = worker_threads});
    }
};

}  // namespace penstock::bench
