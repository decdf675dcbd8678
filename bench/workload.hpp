// The work that most cases run: reads by many groups, the same blocks by pread, and the output of
// kernels that write, with the way it takes to a file by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "context.hpp"
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

// About `total_bytes` of blocks by that many groups.
pattern make_pattern(std::uint64_t file_bytes, std::uint64_t block_bytes, std::uint64_t step_bytes,
                     std::uint64_t groups, std::uint64_t total_bytes, bool in_order);

enum class caller { warps, blocks };

// What one run took and brought.
struct run_result {
    double seconds = 0;
    double cores = 0;
    double loaded_bytes = 0;  // into the cache
    // Requests that a service thread took together, in the mean; 0: none.
    double batch_requests = 0;
};

// Runs the pattern through the file calls and checks what came. On the cpu back end a group is a
// thread. `clock_shards`: a power of two, at most what the runtime chose, the same in every run
// over one runtime; 0: what it chose.
status run_reads(runtime& rt, int fd, const pattern& what, run_result& out,
                 caller kind = caller::warps, std::uint32_t clock_shards = 0);

// How many groups keep a back end busy without taking more than a fraction of its frames; --threads
// on the cpu back end.
std::uint64_t group_count(const context& here, const runtime& rt, std::uint64_t block_bytes);

// "4 warps", "2 threads"
std::string groups_label(const context& here, std::uint64_t groups, caller kind = caller::warps);

// The same by pread, `what.groups` threads with a buffer each. `direct`: past the page cache
// (O_DIRECT); -EINVAL where the file system has none.
status run_preads(const std::string& path, const pattern& what, bool direct, run_result& out);

// All processors, or --threads.
std::uint64_t host_threads(const context& here);

// Parts of the case miss that both back ends share.

// Records of 3 KiB on 4 KiB boundaries and blocks of 32 KiB anywhere, at random, with pages of this
// size: what reaches the caller a second, and how much was loaded for it.
status random_records(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

// The time of one run that evicts all the while, with fewer and fewer shards of the clock.
status fewer_shards(context& here, std::uint64_t file_bytes, std::uint64_t page_bytes);

// Opens windows onto the whole file where there is a GPU; nothing elsewhere.
status open_all_windows(const context& here, runtime& rt, int fd, std::uint64_t file_bytes);

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

// The baseline: a programmer's way without Penstock to bring the output of a kernel to a file.
std::string write_by_hand_name(const context& here);

// The whole file from `output`, memory of that back end. On a GPU each thread copies pieces of 4
// MiB to pinned buffers, two of its own, and writes one while the next is on its way.
status write_by_hand(const context& here, backend where, const std::byte* output, series& rate);

}  // namespace penstock::bench
