// Makes traces of what other programs recorded: the text that blkparse prints, and fio's iolog.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trace.hpp"

namespace penstock::trace {

enum class recorder : std::uint8_t { blkparse, fio };

struct import_request {
    recorder from = recorder::blkparse;
    std::string input, out,
        file;                 // file: what the trace calls its file; of fio's log it may be empty
    std::string device;       // of blkparse: the one to take, as "8,0"; empty: the only one
    char action = 'Q';        // of blkparse
    std::uint64_t pages = 0;  // of the file; 0: as many as are touched
    std::uint32_t page_bytes = 4096;
    bool binary = false;
};

struct import_report {
    trace_header header;
    std::uint64_t lines = 0, reads = 0, writes = 0, flushes = 0;
    std::uint64_t widened = 0;  // reads and writes that did not begin and end at pages
    std::uint64_t late = 0;     // records that got the time of the one before, which was later
    std::map<std::string, std::uint64_t> skipped;  // lines that gave no record, by reason
    double seconds = 0;
};

// Reads the input twice: once to find every mistake and how large the files are, and once to write
// the trace.
status import_trace(const import_request& asked, import_report& out);

}  // namespace penstock::trace
