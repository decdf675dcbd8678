// The work that most cases run: threads of the host that start at one moment, reads by many groups,
// the same blocks by pread, and kernels that count what went wrong.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <thread>
#include <vector>

#include "common/threads.hpp"
#include "context.hpp"
#include "machine.hpp"
#include "penstock/base/atomic.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/launch.hpp"

namespace penstock::bench {

// Seconds for work(thread) on each of `threads` threads, from the moment all of them stand ready
// until the last is done: what it takes to make threads, and prepare(thread), is not the work's.
template <typename Prepare, typename Work>
double seconds_of_threads(std::uint64_t threads, const Prepare& prepare, const Work& work) {
    std::barrier ready(static_cast<std::ptrdiff_t>(threads));
    std::vector<double> began(threads), ended(threads);
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        prepare(t);
        ready.arrive_and_wait();
        began[t] = now_s();
        work(t);
        ended[t] = now_s();
    });
    return *std::max_element(ended.begin(), ended.end()) -
           *std::min_element(began.begin(), began.end());
}
// The system places the threads.
template <typename Work>
double seconds_of_threads(std::uint64_t threads, const Work& work) {
    return seconds_of_threads(
        threads, [](std::uint32_t) {}, work);
}

// The same, with a processor for each thread as far as there are so many.
template <typename Work>
double seconds_together(std::uint64_t threads, const Work& work) {
    const auto take_processor = [](std::uint32_t t) {
        cpu_set_t processors;
        CPU_ZERO(&processors);
        CPU_SET(t % std::max(1u, std::thread::hardware_concurrency()), &processors);
        ::sched_setaffinity(0, sizeof processors, &processors);
    };
    return seconds_of_threads(threads, take_processor, work);
}

// The same for visit(thread, number) with `rounds` random numbers below `count` on each thread.
template <typename Visit>
double seconds_at_random(std::uint64_t threads, std::uint64_t rounds, std::uint64_t count,
                         const Visit& visit) {
    return seconds_together(threads, [&](std::uint64_t t) {
        for (std::uint64_t i = 0; i < rounds; ++i) visit(t, mix64(t * rounds + i) % count);
    });
}

// How long a run took, and how many processors it kept busy.
struct timed_run {
    double seconds, cores;
};

// A baseline by few threads and by all, in turns. The best counts: the lock of a file or the bus
// may leave nothing for more. Where it moves pieces, the same with each size of them: small ones
// stay in the processor's caches.
class by_threads {
public:
    // Of `few` those below `all`.
    by_threads(std::initializer_list<std::uint64_t> few, std::uint64_t all,
               std::initializer_list<std::uint64_t> piece_bytes = {0});
    // run(threads, piece_bytes) gives a timed_run.
    template <typename Run>
    void measure(const Run& run) {
        for (entry& each : entries_) {
            const timed_run took = run(each.threads, each.piece_bytes);
            each.seconds.add(took.seconds);
            each.cores.add(took.cores);
        }
    }
    [[nodiscard]] const series& seconds() const { return best().seconds; }
    // "4 threads, the best of 1, 4, 16; pieces of 1 MiB, the best of 1 MiB, 4 MiB; 3.9 cores"
    [[nodiscard]] std::string name() const;

private:
    struct entry {
        std::uint64_t threads, piece_bytes;
        series seconds{}, cores{};
    };
    [[nodiscard]] const entry& best() const;
    std::vector<entry> entries_;
};

// take(offset, bytes) for the pieces of a whole, each by the thread that comes first.
template <typename Take>
void take_pieces(std::atomic<std::uint64_t>& next, std::uint64_t whole, std::uint64_t piece,
                 const Take& take) {
    for (std::uint64_t at = next.fetch_add(piece); at < whole; at = next.fetch_add(piece))
        take(at, std::min(piece, whole - at));
}

inline constexpr const char* not_resident =
    "the file could not be brought into the cache (give a smaller --file)";

inline void bring_into_cache(const opened_file& file) {
    require_all(file.rt->prefetch(file.fd, 0, file.bytes), file.bytes, not_resident);
}

// A file in the cache of a cpu runtime, and the same bytes in plain memory.
struct resident_file : opened_file {
    // Laid out as the cache is: anonymous memory that may have huge pages.
    std::unique_ptr<std::byte, void (*)(void*)> plain;

    resident_file(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes,
                  std::uint64_t worker_threads = 0)
        : opened_file(here.open({.page_bytes = page_bytes,
                                 .cache_bytes = 2 * here.use_file(file_bytes),
                                 .worker_threads = worker_threads})),
          plain(static_cast<std::byte*>(std::aligned_alloc(file_step_bytes, bytes)), std::free) {
        if (plain == nullptr)
            throw failure(-ENOMEM,
                          "no memory for " + format_size(bytes) + "; give a smaller --file");
        require_all(rt->read(fd, plain.get(), bytes, 0), bytes, not_resident);
    }
};

// Which blocks of the file group `group` of `groups` reads, one after the other.
struct pattern {
    std::uint64_t block_bytes = 4096;
    std::uint64_t step_bytes = 4096;  // from one block's beginning to the next
    std::uint64_t blocks = 1;         // in the file
    std::uint64_t groups = 1;
    std::uint64_t rounds = 1;  // blocks for each group
    std::uint64_t seed = 0;
    bool in_order = false;  // from front to back, each group the next block; else at random

    PENSTOCK_HD std::uint64_t offset_bytes(std::uint64_t group, std::uint64_t i) const {
        const std::uint64_t block = in_order
                                        ? i * groups + group
                                        : mix64(group * rounds + i + seed * 0x9e3779b97f4a7c15ull);
        return block % blocks * step_bytes;
    }
    [[nodiscard]] std::uint64_t total_bytes() const { return block_bytes * groups * rounds; }
    // How many pages of that size a block lies in, in the mean.
    [[nodiscard]] double pages_of_a_block(std::uint64_t page_bytes) const {
        const std::uint64_t places = std::clamp(page_bytes / step_bytes, std::uint64_t{1}, blocks);
        std::uint64_t pages = 0;
        for (std::uint64_t at = 0; at < places * step_bytes; at += step_bytes)
            pages += (at + block_bytes - 1) / page_bytes - at / page_bytes + 1;
        return static_cast<double>(pages) / static_cast<double>(places);
    }
};

// About `total_bytes` of blocks of the file by that many groups. 0: a step is a block.
pattern make_pattern(const context& here, std::uint64_t block_bytes, std::uint64_t groups,
                     std::uint64_t total_bytes, bool in_order = false,
                     std::uint64_t step_bytes = 0);

enum class caller { warps, blocks };

// What one run took and brought.
struct run_result {
    double seconds = 0;
    double cores = 0;
    double rate = 0;          // GB/s of the pattern's blocks
    double loaded_bytes = 0;  // into the cache, or from a window straight to a group
    // Requests that a service thread took together, in the mean; 0: none.
    double batch_requests = 0;

    run_result(const stopwatch& watch, const pattern& blocks)
        : run_result(watch, watch.seconds(), blocks) {}
    // For a run that took a part of the watch's time.
    run_result(const stopwatch& watch, double seconds_of_run, const pattern& blocks)
        : seconds(seconds_of_run),
          cores(watch.cores(seconds)),
          rate(gigabytes_a_second(blocks.total_bytes(), seconds)) {}
};

// Runs the pattern through the file calls and checks what came. On the cpu back end a group is a
// thread. `clock_shards`: a power of two, at most what the runtime chose, the same in every run
// over one runtime; 0: what it chose.
run_result run_reads(const opened_file& file, const pattern& reads, caller kind = caller::warps,
                     std::uint32_t clock_shards = 0);

// How many groups keep a back end busy without taking more than a fraction of its frames; --threads
// on the cpu back end.
std::uint64_t group_count(const context& here, const runtime& rt, std::uint64_t block_bytes);

// "4 warps", "2 threads"
std::string groups_label(const context& here, std::uint64_t groups, caller kind = caller::warps);

// The same by pread, `reads.groups` threads with a buffer each. `direct`: past the page cache
// (O_DIRECT); -EINVAL where the file system has none.
run_result run_preads(const std::string& path, const pattern& reads, bool direct = false);

// The name of that baseline with as many threads as the host has.
std::string pread_by_all(const context& here);

// Adds the rate at which prefetch brings a file into the cache, or finds it there.
void add_prefetch(const opened_file& file, measured& out);

// Opens windows onto the whole file where there is a GPU; nothing elsewhere.
void open_all_windows(const context& here, const opened_file& file);

// Parts of the case miss that both back ends share: records of 3 KiB on 4 KiB boundaries and blocks
// of 32 KiB anywhere, at random, with pages of this size: what reaches the caller a second, and how
// much was loaded for it. `plain`: the same by a kernel without Penstock, a second baseline.
using plain_reads = std::function<timed_run(const pattern&)>;
void random_records(context& here, std::uint64_t page_bytes, const plain_reads& plain = {});

// The time of one run that evicts all the while, with fewer and fewer shards of the clock.
void fewer_shards(context& here, std::uint64_t page_bytes);

// Kernel that makes up words which tell where they belong. The i-th word is mix64(first + i), as in
// the scratch file.
struct fill_words {
    std::uint64_t* words;
    std::uint64_t count, groups, first = 0;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t index) const {
        for (std::uint64_t i = index * g.size() + g.rank(); i < count; i += groups * g.size())
            words[i] = mix64(first + i);
    }
};

template <width Width, typename Body>
void run_kernel(runtime& rt, std::uint64_t groups, const Body& body,
                const launch_shape& shape = {}) {
    require(launch<Width>(rt, groups, body, shape), "kernel");
}

// Of what a kernel has counted: "3 FAILURES".
inline void require_none(const memory& counter, const std::string& failures) {
    const std::uint64_t found = counter.number();
    expect(found == 0, std::to_string(found) + " " + failures);
}

}  // namespace penstock::bench
