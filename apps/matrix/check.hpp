// The result against a reference in double precision.
#pragma once

#include <cstdint>

#include "methods.hpp"

namespace penstock::matrix {

struct check_report {
    double seconds = 0;
    std::uint64_t rows = 0;  // that were checked
    // |c - reference| / sum of |a b|, over all numbers of these rows.
    double greatest_deviation = 0;
    std::uint64_t worst_row = 0, worst_column = 0;
    double tolerance = 0;  // most that it may be
    // Numbers that single precision cannot hold, or with what is no number.
    std::uint64_t not_judged = 0;
};

// What the roundings of a sum of k products come to at most, relative to the sum of the products'
// sizes. docs/apps/matrix.md derives it.

// Of a row and a vector, in the order that is written there.
double vector_tolerance(std::uint64_t k);

// Of a row and a column of a matrix, in the order that is written there.
double product_tolerance(std::uint64_t k);

// In any order, as of a library.
double any_order_tolerance(std::uint64_t k);

// Reads the result from its file. Of a vector all rows. Of a matrix all rows too, or, where that
// would be more than `most_products`, one of each 128 rows, drawn by chance from the size: so a row
// of every tile. `in_order`: by a method that adds in the order that is written down. -EILSEQ and a
// message that names the place if a deviation is larger than the tolerance.
status check_result(const matrix_job& job, bool in_order, check_report& out,
                    double most_products = 4e9);

}  // namespace penstock::matrix
