// The text of `penstock stat` for people: a line of 79 columns for each cache.
// A line is longer only where a number of a device or a process is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/statistics_publisher.hpp"

namespace penstock::cli {

// A cache of a running program, and what its process last published.
struct cache_report {
    int pid = 0;
    std::string program;
    std::uint64_t start_ticks = 0;  // of the process
    host::published_statistics now;
    std::uint64_t taken_ns = 0;  // CLOCK_MONOTONIC
    bool answers = false;        // false: these counts are older than the question

    // Equal for two reports of one cache.
    [[nodiscard]] bool is_same(const cache_report& other) const {
        return pid == other.pid && start_ticks == other.start_ticks &&
               now.cache_number == other.now.cache_number;
    }
};

// Sorts the reports by process and number. Copies of the library in one process each count their
// caches from 0: a number that is taken becomes the next one, so that each cache has its own.
void number_caches(std::vector<cache_report>& all);

// "gpu0", "cpu".
std::string device_of(const cache_report& report);

// In at most four columns: "812", "1.3k", "45G".
std::string short_number(double value);

std::string table_head();
// What was counted since the runtime was made; or since `before`, for each second.
std::string table_line(const cache_report& report, const cache_report* before);

}  // namespace penstock::cli
