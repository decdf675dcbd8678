// penstock replay: plays a trace of page accesses through a buffer of host and device memory.
#pragma once

#include <string>

namespace penstock::replay {

// As given on the command line; empty: not given.
struct request {
    std::string trace, policy, order = "lru", ram, gpu, blocks, table, absent, threads, backend,
                               signature, sign_on, batch, batch_wait;
    bool simulate = false, cached = false, writes = false, verify = false, always_dedu = false,
         json = false, quiet = false;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::replay
