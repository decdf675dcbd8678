// The result against a reference in double precision.
#pragma once

#include <cstdint>

#include "methods.hpp"

namespace penstock::matvec {

struct check_report {
    double seconds = 0;
    double greatest_deviation = 0;  // |y - reference| / sum of |a x|, over all rows
    std::uint64_t worst_row = 0;
    double tolerance = 0;  // most that it may be
    // Rows with sums that single precision cannot hold, or with what is no number.
    std::uint64_t not_judged = 0;
};

// What the roundings of a row's sum come to at most, relative to the sum of the products' sizes.
// docs/apps/matrix.md derives it.
double tolerance_of(std::uint64_t columns);

// Reads the result from its file. -EILSEQ and a message that names the row if a deviation is larger
// than the tolerance.
status check_result(const matvec_job& job, check_report& out);

}  // namespace penstock::matvec
