// A job that is done several times, each timed for the report.
#pragma once

#include <cstdint>

#include "common/method_report.hpp"
#include "common/stopwatch.hpp"

namespace penstock::apps {

// `once()`: a status. The first error ends it.
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
