// Command penstock bench: its settings, as text and checked, and the run that measures Penstock
// and its baselines and prints one JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

// As given on the command line; empty: not given.
struct request {
    std::vector<std::string> cases;
    std::string backend, page, cache, file, repeats, directory, threads, service_threads, commit;
    bool sweep = false;
    bool json = false;  // the output is JSON with and without it
    bool quiet = false;
};

// Checked. An empty list or a 0 leaves the choice to the case.
struct settings {
    std::vector<std::string> cases;
    backend where = backend::automatic;
    std::vector<std::uint64_t> page_bytes, cache_bytes, service_threads;
    std::uint64_t file_bytes = 0;
    std::uint64_t repeats = 0;
    std::uint64_t threads = 0;
    std::string directory;
    std::string commit;
    bool sweep = false;
    bool quiet = false;
};

// The smallest file that is measured; sizes are rounded up to a multiple of it, which holds whole
// pages of every size.
inline constexpr std::uint64_t file_step_bytes = std::uint64_t{2} << 20;

// -EINVAL and a message with option, value and cure. `known`: the names of the cases.
status settle(const request& asked, const std::vector<std::string>& known, settings& out);

// For the help: one line a case.
std::string about_cases();

// The exit status; what went wrong has been said.
int run(const request& asked);

}  // namespace penstock::bench
