// Parts of the matrices, copied from the page cache.
#pragma once

#include <cstdint>

#include "matmul_view.hpp"
#include "penstock/gather.hpp"

namespace penstock::matmul {

// As rows that are gathered: of what is there nothing is locked, and missing pages are loaded
// together.
struct cached_matrices {
    const runtime_ref& fs;
    const matmul_view& view;
    int a, b;

    PENSTOCK_HD int file_of(bad_file which) const { return which == bad_file::a ? a : b; }
    PENSTOCK_HD std::uint64_t columns_of(bad_file which) const {
        return which == bad_file::a ? view.k : view.n;
    }

    // Whole group: `columns` numbers of each of some rows, one behind the other to `to`. 0 or a
    // negative errno.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE std::int64_t fetch(const Group& g, bad_file which,
                                                   std::uint64_t row, std::uint64_t rows,
                                                   std::uint64_t column, std::uint64_t columns,
                                                   float* to) const {
        const row_view from(
            fs, file_of(which),
            {columns * sizeof(float), columns_of(which) * sizeof(float), column * sizeof(float)});
        const std::int64_t done = gather(g, from, view.numbers + row, rows, to);
        return done < 0 ? done : 0;
    }
};

}  // namespace penstock::matmul
