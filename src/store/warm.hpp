// Brings blocks of a file into a store, for programs that know what will be wanted. A node that
// brings its part of a file, while the others bring theirs, reads that part from the file server
// once.
#pragma once

#include <cstdint>
#include <string>

#include "os/env.hpp"
#include "penstock/error.hpp"
#include "store/block_store.hpp"

namespace penstock::host {

// Blocks first, first + step, ...: `count` of them, or up to the end of the file.
struct warm_range {
    std::uint64_t first = 0, step = 1, count = 0;
};

struct warm_counts {
    std::uint64_t had = 0;   // blocks that the store had
    std::uint64_t put = 0;   // blocks that were read and put
    std::uint64_t full = 0;  // blocks that were read, and for which the store had no room
};

// Waits for the store up to `wait_ns` for each block. -EAGAIN: the file changes, or has changed so
// lately that its times prove nothing. Stops at the first failure; `counts` has what was done.
status warm_blocks(environment& env, const std::string& path, const std::string& space,
                   const warm_range& range, std::uint64_t wait_ns, block_store& store,
                   warm_counts& counts);

}  // namespace penstock::host
