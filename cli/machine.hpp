// What works on this machine: probes of the host and of its GPUs. Every probe does the thing
// itself, in small; none looks only at a version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::cli {

// `works` false: `why` says why not. True: `why` may add how.
struct finding {
    std::string feature;
    bool works = false;
    std::string why;
};

// Opening files, io_uring, O_DIRECT, huge pages, times of files.
std::vector<finding> probe_host();

struct gpu {
    int number = 0;
    std::string name;
    std::string capability;  // "9.0"
    std::uint64_t memory_bytes = 0;
    std::uint64_t free_bytes = 0;
    int multiprocessors = 0;
};

struct gpu_report {
    std::string driver;   // CUDA version that the driver supports, "13.0"; empty: no driver
    std::string runtime;  // CUDA version Penstock was built with; empty: built without
    std::string why;      // why there is no GPU to use; empty if there is one
    std::vector<gpu> gpus;
    std::vector<finding> findings;  // registered windows, pinned memory, peer access
};

gpu_report look_at_gpus(int device);

}  // namespace penstock::cli
