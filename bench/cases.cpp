// The table of the cases of penstock bench.
#include "cases.hpp"

namespace penstock::bench {

#if defined(PENSTOCK_WITH_CUDA)
#define PENSTOCK_BENCH_GPU(body) body
#else
#define PENSTOCK_BENCH_GPU(body) nullptr
#endif

const std::vector<bench_case>& case_table() {
    static const std::vector<bench_case> table = {
        {"hit", "copying reads of cached pages, against plain memory", hit_on_cpu,
         PENSTOCK_BENCH_GPU(hit_on_gpu)},
        {"map", "map, look at and unmap cached pages, against plain memory", map_on_cpu,
         PENSTOCK_BENCH_GPU(map_on_gpu)},
        {"element", "v[i] and for_each of cached elements, against plain memory", element_on_cpu,
         PENSTOCK_BENCH_GPU(element_on_gpu)},
        {"gather",
         "random rows by an array of their numbers, against the same rows from plain memory",
         gather_on_cpu, PENSTOCK_BENCH_GPU(gather_on_gpu)},
        {"miss",
         "random pages and records of a file larger than the cache, against the bus or pread",
         miss_on_cpu, PENSTOCK_BENCH_GPU(miss_on_gpu)},
        {"sequential", "a whole file into the cache in order, against a pipeline by hand or pread",
         sequential_on_cpu, PENSTOCK_BENCH_GPU(sequential_on_gpu)},
        {"cold", "a file that is not in memory, against the best of O_DIRECT and buffered pread",
         cold, cold},
        {"request",
         "pages served by the service threads from the page cache, against pread; one round trip",
         request_path, request_path},
        {"write", "a kernel's output to a file, against copies back and pwrite by all cores",
         write_path, write_path},
        {"append",
         "records of all groups to the shared end of one file, against writes with O_APPEND by all "
         "cores",
         append_path, append_path},
        {"fsync",
         "fsync of few and many dirty pages while another file has none or many, against pwrite "
         "and fdatasync",
         fsync_path, fsync_path},
        {"acquire",
         "a region after a part of the file changed, against bringing the whole file again",
         acquire_path, acquire_path},
        {"sharing",
         "pages that a kernel and a program change at once, against a buffer of its own for each",
         sharing, sharing},
        {"peer",
         "reads through a mount of a file that is not in memory and partly with a region or in the "
         "cache, against its disk",
         peer, peer},
        {"mount", "programs at a mount, against the same at the file itself", mount_case,
         mount_case},
        {"evict",
         "which pages go first: a closed file's, clean or dirty ones, with up to 64 times as many "
         "as fit",
         evict_on_cpu, nullptr},
        {"merge", "merging what two wrote to one page, against copying the page", merge_on_cpu,
         PENSTOCK_BENCH_GPU(merge_on_gpu)},
        {"signature", "signatures of blocks of 4 KiB, against all cores and one", signature_speed,
         signature_speed},
        {"exchange",
         "pages of a buffer that change places between host and device, against the bus",
         exchange_path, exchange_path},
        {"buffer",
         "pages of a buffer fixed and unfixed in the host, and found in the device, against plain "
         "memory and pread",
         buffer_path, buffer_path},
        {"policy", "replacement policies over traces, by simulation, against the optimum",
         policy_case, policy_case},
    };
    return table;
}

}  // namespace penstock::bench
