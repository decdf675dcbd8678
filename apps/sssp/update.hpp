// The updater: a program of its own that changes weights in a graph's file, by ordinary system
// calls or by stores to a mapping. It knows nothing of Penstock, of mounts, or of the programs that
// compute with the graph. `penstock-sssp run` starts it and waits for it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "penstock/error.hpp"

namespace penstock::sssp {

struct update_request {
    std::string file;
    std::uint64_t pages = 0;  // of the file's edges, for the caller
    double percent = 0;       // of these
    std::uint64_t seed = 1;
    std::uint64_t round = 1;
    bool by_store = false;  // else by write
    std::uint32_t threads = 1;
};

// In the updater: gives every edge of the chosen pages the weight of this round.
status update_weights(const update_request& what);

// In the program that computes: starts the updater as another process and waits for its end, at
// most some minutes. Ends it if `interrupted`.
status run_updater(const update_request& what, const std::function<bool()>& interrupted);

}  // namespace penstock::sssp
