// Text and JSON of the programs' reports, what one method did, and a job that is timed several
// times for them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "common/process.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

// A number by a form of printf, such as "%.3f s".
std::string text_of(const char* form, double number);

// The name of a file as a field of a line whose fields are separated by tabs: \\ for a backslash,
// \t for a tab and \n for a line end, so that different names stay different and a line stays a
// line.
std::string field_of(const std::string& text);

// Of an even number, between the two in the middle; of none, 0.
double median(std::vector<double> of);

// One line. Names of files need not be UTF-8; JSON must be.
std::string line_of(const nlohmann::json& value);

// Where the runtime runs, how large its cache is, and what it did.
nlohmann::json json_of(const runtime& rt);

// On standard output. A message if it cannot be written.
status print_json(const std::string& text);

// What one method of a program did. Times are of this process's wall clock.
struct method_report {
    std::string name;
    std::string backend = "cpu";
    std::string note;           // how it computed, in a few words
    double start_seconds = 0;   // runtime, threads, memory
    double window_seconds = 0;  // opening windows onto the inputs
    // Of each repetition: from the inputs in their files to the result in its own.
    std::vector<double> seconds;
    double cpu_seconds = 0;  // of all processors, in all repetitions
    std::uint64_t window_bytes = 0;
    // Brought into the cache (penstock), staged (cuda); cpu: 0, for maps do not tell.
    std::uint64_t bytes_read = 0;
    std::unique_ptr<runtime> rt;     // null if the method needed none
    std::vector<std::string> notes;  // what it said when it was made

    [[nodiscard]] double median_seconds() const;
};

// Makes the runtime of a method, and fills in where it runs.
status start_runtime(const options& settings, method_report& report,
                     device_use use = device_use::single);

void say_notes(const method_report& r);

// -ENODEV and a message: what the method cuda says in a program without CUDA.
status no_cuda();

// The parts of a report that all programs have; the second one without what only repetitions have.
nlohmann::json json_of(const method_report& r);
nlohmann::json json_of_work(const method_report& r);
// json_of() a runtime, or null.
nlohmann::json runtime_of(const method_report& r);

// "0.100 s, 0.090 s (12.00 GB/s), windows 0.000 s, start 0.500 s"; the rate is what `amount` and
// `unit` make of the median.
std::string times_of(const method_report& r, double amount, const std::string& unit);

// A job that is done several times, each timed for the report. `once()`: a status. The first error
// ends it.
template <typename Once>
status repeat_timed(std::uint32_t times, method_report& report, const Once& once) {
    stopwatch watch;
    const double cpu_before = cpu_seconds();
    for (std::uint32_t i = 0; i < times; ++i) {
        watch.lap();
        if (status s = once(); !s) return s;
        report.seconds.push_back(watch.lap());
    }
    report.cpu_seconds = cpu_seconds() - cpu_before;
    return {};
}

// The same through a runtime, which counts what it reads meanwhile.
template <typename Once>
status repeat_timed(std::uint32_t times, const runtime& rt, method_report& report,
                    const Once& once) {
    const std::uint64_t misses_before = rt.stats().misses;
    status ended = repeat_timed(times, report, once);
    report.bytes_read = (rt.stats().misses - misses_before) * rt.settings().page_bytes;
    return ended;
}

}  // namespace penstock::apps
