// The table of the numbers in `statistics`: JSON, the sum over the device's counters and the tests
// read it. What each number means stands beside the member, in penstock/statistics.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "penstock/engine/layout.hpp"
#include "penstock/statistics.hpp"

namespace penstock::settings {

struct statistic_entry {
    const char* name;
    std::uint64_t statistics::*member;
    engine::counter counter =
        engine::count_kinds;  // of the device; count_kinds: the host counts it
};

// The histograms are not among them.
std::span<const statistic_entry> statistic_entries();

}  // namespace penstock::settings
