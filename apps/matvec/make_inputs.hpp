// A matrix and a vector of random numbers, from a seed.
#pragma once

#include <cstdint>

#include "request.hpp"

namespace penstock::matvec {

struct make_report {
    std::uint64_t bytes = 0;  // of both files
    double seconds = 0;
    std::uint32_t threads = 0;
};

// Numbers even from -1 to 1; docs/apps/matrix.md says which. All threads make and write pieces of
// their own.
status make_inputs(const request& asked, make_report& report);

}  // namespace penstock::matvec
