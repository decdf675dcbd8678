// Copies open files, or compares them, by one kernel (on the cpu back end by its threads).
#pragma once

#include <cstdint>
#include <vector>

#include "data_extents.hpp"
#include "penstock/runtime.hpp"

namespace penstock::cp {

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
