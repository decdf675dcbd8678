// Brings blocks of a file into a store, for programs that know what will be wanted. A node that
// brings its part of a file, while the others bring theirs, reads that part from the file server
// once.
#pragma once

#include <cstdint>
#include <string>

#include "os/env.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"
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
    int store_code = 0;      // the negative errno with which the store failed, if that ended it
};

struct warm_settings {
    std::string space;                         // options::block_store_namespace
    std::uint64_t wait_ns = 0;                 // for the store, for each block
    trust_mode trust = trust_mode::automatic;  // options::trust_times
};

// -EAGAIN: the file changes, or has changed so lately that its times prove nothing. -EOPNOTSUPP:
// the times of its file system are not trusted. A file of a network file system that this process
// has not seen before is waited for, 4 s. Stops at the first failure; `counts` has what was done,
// so a caller can go on at the block that failed.
status warm_blocks(environment& env, const std::string& path, const warm_settings& settings,
                   const warm_range& range, block_store& store, warm_counts& counts);

}  // namespace penstock::host
