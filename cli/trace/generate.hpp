// Makes traces, and the files that they are of, from a seed alone: one file of a given share of
// equal pages, or the images of several virtual machines that run the same system.
#pragma once

#include <cstdint>
#include <string>

#include "page_pattern.hpp"
#include "trace.hpp"

namespace penstock::trace {

struct generate_request {
    std::string out, file, data;  // the trace; how it calls its file, or the images before ".0";
                                  // the same where the file is to be made, or empty
    bool binary = false, quiet = false;
    std::uint32_t page_bytes = 4096, threads = 1;
    std::uint64_t pages = 0, accesses = 0, seed = 1, rate = 10000, flush_every = 0;
    pattern how = pattern::uniform;
    double skew = 0.9, factor = 1, write_percent = 0, shared_write_percent = 0;
    std::uint32_t machines = 0;  // 0: one file, no image
    double common_percent = 0;
};

struct generate_report {
    trace_header header;
    std::uint64_t reads = 0, writes = 0, flushes = 0, data_bytes = 0;
    double seconds = 0;
};

// Trace and files appear whole or not at all.
status generate(const generate_request& asked, generate_report& out);

// The header that generate() gives the trace.
trace_header made_header(const generate_request& asked);

}  // namespace penstock::trace
