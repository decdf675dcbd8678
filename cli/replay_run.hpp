// A trace played through the buffer manager against its files: pages are read and written where the
// trace says so, and it takes the time that it takes.
#pragma once

#include "buffer/pool/manager.hpp"
#include "replay_simulate.hpp"

namespace penstock::replay {

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
status run_against_files(const std::string& trace, const simulation& how,
                         const run_settings& settings, run_report& out);

}  // namespace penstock::replay
