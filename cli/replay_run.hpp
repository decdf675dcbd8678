// Replay of a trace through the buffer manager: simulated without any bytes, or against its files.
#pragma once

#include <cstdint>

#include "buffer/core/types.hpp"
#include "buffer/pool/manager.hpp"
#include "penstock/error.hpp"
#include "trace/trace.hpp"

namespace penstock::replay {

// A trace played through the buffer manager's core without any bytes: where its pages were found,
// and what would have moved.

enum class policy : std::uint8_t { native, gram, dedu };
enum class host_order : std::uint8_t { lru, clock };

struct simulation {
    policy page_policy = policy::gram;
    host_order order = host_order::lru;
    std::uint64_t ram_bytes = 0, gpu_bytes = 0;  // as asked for, for the report
    buffer::limits limits;                       // may be less: what the trace can fill
};

struct simulated {
    std::uint64_t reads = 0, writes = 0, flushes = 0;  // of single pages; flushes of files
    std::uint64_t host_hits = 0, device_hits = 0, misses = 0, loads = 0;
    buffer::counts moved;
    std::uint32_t pages = 0, dirty_pages = 0, pages_with_sharing = 0, blocks = 0;  // at the end
    std::uint64_t block_references = 0, absent_blocks = 0;
    double seconds = 0;

    [[nodiscard]] std::uint64_t accesses() const { return reads + writes; }
};

// Reads the trace to its end. The limits have been checked, and have all files of the trace.
status simulate(trace::reader& from, const simulation& setup, simulated& out);

// A trace played through the buffer manager against its files: pages are read and written where the
// trace says so, and it takes the time that it takes.

struct run_settings {
    std::string backend;  // cpu, gpu, or empty: a GPU if there is one
    std::uint32_t threads = 1;
    bool past_the_cache = true;  // of the operating system, so that the sizes mean something
    bool writes = false;         // the files may be changed
    bool verify = false;         // each page that is read is compared with what it must hold
    std::uint32_t batch_pages = 256, batch_wait_us = 0;
    buffer::dedu_settings dedu{};
};

struct run_report {
    simulated
        counts;  // as far as the manager counts them: accesses, hits, misses, loads, and what moved
    double flush_seconds = 0;  // at the end, for pages that were still dirty
    std::uint64_t looked_blocks = 0, shared_blocks = 0, compared_blocks = 0, differing_blocks = 0;
    bool on_gpu = false;
};

// Everything that can be seen before the first read or write of a file is refused before it.
// However it ends, what was written is in the files.
status run_against_files(const std::string& trace, const simulation& setup,
                         const run_settings& settings, run_report& out);

}  // namespace penstock::replay
