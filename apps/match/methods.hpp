// The ways to search. All find the same matches with the same distances, bit by bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "image_file.hpp"
#include "match_view.hpp"
#include "penstock/runtime.hpp"

namespace penstock::match {

struct match_job {
    image_file queries;
    std::vector<image_file> databases;
    float threshold = 0;
    bool whole = false;   // compare to the end what cannot match any more
    bool windows = true;  // penstock on a GPU
    bool quiet = false;
    options settings;

    [[nodiscard]] std::uint32_t floats() const { return padded_floats(queries.header.floats()); }
    [[nodiscard]] std::uint64_t image_count() const;
};

// What one method did. Times are of this process's wall clock.
struct method_report {
    std::string name;
    std::string backend = "cpu";
    std::string note;           // how it computed, in a few words
    double start_seconds = 0;   // runtime, threads, memory
    double window_seconds = 0;  // opening windows onto the databases
    double match_seconds = 0;   // from the queries in their file to all matches in host memory
    double cpu_seconds = 0;     // of all processors, meanwhile
    std::uint64_t window_bytes = 0;
    std::uint64_t bytes_read = 0;  // of databases: brought into the cache (penstock), staged
                                   // (cuda); cpu: 0, for maps do not tell
    match_totals totals{};
    std::vector<std::uint64_t> best;  // of each query, as in match_view
    std::unique_ptr<runtime> rt;      // null if the method needed none
};

// One kernel that reads queries and databases through Penstock.
status match_with_penstock(const match_job& job, method_report& report,
                           std::vector<std::string>& notes);

// Baseline: the same comparisons on CPU threads, from memory maps of the databases.
status match_with_cpu(const match_job& job, method_report& report);

// Baseline: the CPU reads the databases into pinned memory, chunk by chunk, and copies and
// comparisons overlap. -ENODEV and a message without a GPU.
status match_with_cuda(const match_job& job, method_report& report);

// What an error code of a search means for the user.
status match_error(const match_job& job, std::uint32_t database, int code);

}  // namespace penstock::match
