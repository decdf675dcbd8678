// Cases of penstock bench: their bodies, and the table that names them.
#pragma once

#include <vector>

#include "context.hpp"

namespace penstock::bench {

// The bodies of the cases. Those on a GPU exist only in builds with CUDA.
status hit_on_cpu(context& here);
status hit_on_gpu(context& here);
status map_on_cpu(context& here);
status map_on_gpu(context& here);
status element_on_cpu(context& here);
status element_on_gpu(context& here);
status gather_on_cpu(context& here);
status gather_on_gpu(context& here);
status miss_on_cpu(context& here);
status miss_on_gpu(context& here);
status sequential_on_cpu(context& here);
status sequential_on_gpu(context& here);
status merge_on_cpu(context& here);
status merge_on_gpu(context& here);

// The same body on both back ends.
status cold(context& here);
status request_path(context& here);
status write_path(context& here);
status append_path(context& here);
status fsync_path(context& here);
status acquire_path(context& here);
status sharing(context& here);
status peer(context& here);
status mount_case(context& here);
status signature_speed(context& here);
status exchange_path(context& here);
status buffer_path(context& here);
status evict_on_cpu(context& here);
status policy_case(context& here);  // a simulation, on the CPU in both

// A row of the table. A new case is a file of its own, or a part of one, and a row in bench.cpp.
struct bench_case {
    const char* name;
    const char* about;                // one line of the help
    status (*on_cpu)(context& here);  // null: needs a GPU
    status (*on_gpu)(
        context& here);  // null: this build has no CUDA, or the case has nothing to do there
};

const std::vector<bench_case>& case_table();

}  // namespace penstock::bench
