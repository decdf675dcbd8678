// Copies open files, or compares them, by one kernel (on the cpu back end by its threads); and
// where a file has data.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/runtime.hpp"

namespace penstock::cp {

struct file_range {
    std::uint64_t offset_bytes = 0, bytes = 0;
};

// The parts of the first `size_bytes` bytes that are not holes, in order: each begins at a multiple
// of `piece_bytes`, and ends at one or at the end of the file. Holes that have no whole piece count
// as data. All of it, where the file system does not tell.
std::vector<file_range> data_of(int fd, std::uint64_t size_bytes, std::uint64_t piece_bytes);

struct open_copy {
    int from = -1, to = -1;        // descriptors
    std::uint64_t bytes = 0;       // how long the source is
    std::vector<file_range> data;  // what of it is copied; the rest are holes

    // What became of it. All that lies before `reached_bytes` was done.
    std::uint64_t reached_bytes = 0;
    int code = 0;  // 0, or why it stopped there: -EILSEQ, the byte there differs; -ECANCELED, it
                   // never came to it
    bool reading = false;  // the source could not be read; else the copy could not be written
};

// Blocks until all is done or has failed. The status is that of the kernel; each file's own is in
// it.
status copy_open_files(runtime& rt, std::vector<open_copy>& files);
status compare_open_files(runtime& rt, std::vector<open_copy>& files);

}  // namespace penstock::cp
