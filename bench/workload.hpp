// The work that most cases run: reads by many groups, the same blocks by pread, and kernels that
// count what went wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "context.hpp"
#include "machine.hpp"
#include "penstock/base/atomic.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/launch.hpp"

namespace penstock::bench {

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
};

// About `total_bytes` of blocks by that many groups. 0: a step is a block.
pattern make_pattern(std::uint64_t file_bytes, std::uint64_t block_bytes, std::uint64_t groups,
                     std::uint64_t total_bytes, bool in_order = false,
                     std::uint64_t step_bytes = 0);

enum class caller { warps, blocks };

// What one run took and brought.
struct run_result {
    double seconds = 0;
    double cores = 0;
    double rate = 0;          // GB/s of the pattern's blocks
    double loaded_bytes = 0;  // into the cache
    // Requests that a service thread took together, in the mean; 0: none.
    double batch_requests = 0;

    run_result(const stopwatch& watch, const pattern& blocks)
        : seconds(watch.seconds()),
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

// Adds the rate at which prefetch brings a file into the cache, or finds it there.
void add_prefetch(const opened_file& file, std::uint64_t bytes, measured& out);

// Opens windows onto the whole file where there is a GPU; nothing elsewhere.
void open_all_windows(const context& here, const opened_file& file, std::uint64_t file_bytes);

// Parts of the case miss that both back ends share: records of 3 KiB on 4 KiB boundaries and blocks
// of 32 KiB anywhere, at random, with pages of this size: what reaches the caller a second, and how
// much was loaded for it.
void random_records(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

// The time of one run that evicts all the while, with fewer and fewer shards of the clock.
void fewer_shards(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

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
    if (const std::uint64_t found = counter.number(); found != 0)
        throw failure(-EIO, std::to_string(found) + " " + failures);
}

}  // namespace penstock::bench
