// What one method of a program did, for programs that multiply.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "penstock/runtime.hpp"

namespace penstock::apps {

// Times are of this process's wall clock.
struct method_report {
    std::string name;
    std::string backend = "cpu";
    std::string note;           // how it computed, in a few words
    double start_seconds = 0;   // runtime, threads, memory
    double window_seconds = 0;  // opening windows onto the inputs
    std::vector<double>
        seconds;  // of each repetition: from the inputs in their files to the result in its own
    double cpu_seconds = 0;  // of all processors, in all repetitions
    std::uint64_t window_bytes = 0;
    // Brought into the cache (penstock), staged (cuda); cpu: 0, for maps do not tell.
    std::uint64_t bytes_read = 0;
    std::unique_ptr<runtime> rt;  // null if the method needed none

    [[nodiscard]] double median_seconds() const;
};

// -EINVAL and a message unless it is penstock, cpu or cuda.
status check_method(const std::string& name);

// -ENODEV and a message: what the method cuda says in a program without CUDA.
status no_cuda();

// The parts of a report that all programs have.
nlohmann::json json_of(const method_report& r);

// "0.100 s, 0.090 s (12.00 GB/s), windows 0.000 s, start 0.500 s"; the rate is what `amount` and
// `unit` make of the median.
std::string times_of(const method_report& r, double amount, const std::string& unit);

}  // namespace penstock::apps
