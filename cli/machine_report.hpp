// What this machine has, and what works on it: probes of the host and of its GPUs. Every probe does
// the thing itself, in small; none looks only at a version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::info {

// `works` false: `why` says why not. True: `why` may add how.
struct finding {
    std::string feature;
    bool works = false;
    std::string why;
};

finding probe_io_uring();
finding probe_opening();  // opening through /proc/self/fd, which keeps kernels below their roots
finding probe_huge_pages();
finding probe_direct_io();  // reads past the page cache; on the program's own file
finding probe_exact_times();

struct host_facts {
    std::string kernel;
    unsigned processors = 0;
    std::uint64_t memory_bytes = 0;
    std::uint64_t open_files = 0;    // RLIMIT_NOFILE, soft
    std::uint64_t locked_bytes = 0;  // RLIMIT_MEMLOCK, soft
    static constexpr std::uint64_t unlimited = ~std::uint64_t{0};
};
host_facts read_host_facts();

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

}  // namespace penstock::info
