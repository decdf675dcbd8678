// A trace played through the buffer manager's core without any bytes: where its pages were found,
// and what would have moved.
#pragma once

#include <cstdint>

#include "buffer/core/counts.hpp"
#include "buffer/core/types.hpp"
#include "penstock/error.hpp"
#include "trace/trace.hpp"

namespace penstock::replay {

enum class policy : std::uint8_t { native, gram, dedu };
enum class host_order : std::uint8_t { lru, clock };

struct simulation {
    policy what = policy::gram;
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
status simulate(trace::reader& from, const simulation& how, simulated& out);

}  // namespace penstock::replay
