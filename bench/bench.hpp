// Command penstock bench: its settings, as text and checked, the run that measures Penstock and its
// baselines and prints one JSON object, and the failure that ends it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
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

// What ends a run, with a negative errno; the rows that were measured before it are printed.
// Threads of apps::on_threads throw it too.
struct failure : std::runtime_error {
    failure(std::int64_t why, const std::string& message)
        : std::runtime_error(message), code(static_cast<int>(why)) {}
    int code;
};

inline void require(const status& s) {
    if (!s) throw failure(s.code, s.message);
}
// Of a call that gives a negative errno where it fails: "ACT: No such file or directory (ENOENT)".
// Returns what it gave.
inline std::int64_t require(std::int64_t result, std::string_view act) {
    if (result < 0) throw failure(result, std::string(act) + ": " + error_text(result));
    return result;
}
// Of a call that moves so many bytes or pages, or fails.
inline void require_all(std::int64_t moved, std::uint64_t wanted, std::string_view act) {
    if (moved != static_cast<std::int64_t>(wanted)) require(moved < 0 ? moved : -EIO, act);
}
// Of a check of what was measured.
inline void expect(bool good, std::string_view otherwise) {
    if (!good) throw failure(-EIO, std::string(otherwise));
}

// A failure with -EINVAL and a message with option, value and cure. `known`: the names of the
// cases.
settings settle(const request& asked, const std::vector<std::string>& known);

// For the help: one line a case.
std::string about_cases();

// The exit status; what went wrong has been said.
int run(const request& asked);

}  // namespace penstock::bench
