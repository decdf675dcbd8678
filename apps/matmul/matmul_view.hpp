// What a product of matrices needs, as the code that runs on a GPU or on CPU threads sees it.
//
// The result is cut into tiles, which groups take one after the other: 128 by 128 numbers for a
// thread block, 96 by 512 for a CPU thread. A tile is made slab by slab along the rows of A and the
// columns of B.
#pragma once

#include <cstdint>

#include "common/work_items.hpp"

namespace penstock::matmul {

using apps::lesser;
using apps::pieces_of;

// Part of the order of additions, docs/apps/matrix.md: the same for all methods.
inline constexpr std::uint32_t slab_depth = 512;

enum class bad_file : std::uint32_t { a, b, result };

// How the result is cut.
struct tile_shape {
    std::uint32_t rows, columns;
};

// Where a tile lies in the result.
struct tile_place {
    std::uint64_t row, column;
    std::uint32_t rows, columns;
};

struct matmul_view {
    std::uint64_t m, n, k;         // A is m by k, B k by n
    const std::uint64_t* numbers;  // 0, 1, 2, ... up to the most rows of A or B: which to gather
    apps::work_totals* totals;
    std::uint64_t together = 16;  // rows of tiles

    PENSTOCK_HD std::uint64_t tile_count(tile_shape shape) const {
        return pieces_of(m, shape.rows) * pieces_of(n, shape.columns);
    }
};

// Tiles are numbered so that those which are made at the same time need the same rows of A and
// columns of B: some rows of tiles, column by column, then the next ones. B is read once for each
// time, and the rows are complete at its end.
PENSTOCK_HD PENSTOCK_INLINE tile_place place_of(const matmul_view& v, tile_shape shape,
                                                std::uint64_t tile) {
    const std::uint64_t together = v.together, down = pieces_of(v.m, shape.rows),
                        across = pieces_of(v.n, shape.columns);
    const std::uint64_t first = tile / (together * across) * together,
                        height = lesser(together, down - first), in = tile % (together * across);
    const std::uint64_t row = (first + in % height) * shape.rows,
                        column = in / height * shape.columns;
    return {row, column, static_cast<std::uint32_t>(lesser<std::uint64_t>(shape.rows, v.m - row)),
            static_cast<std::uint32_t>(lesser<std::uint64_t>(shape.columns, v.n - column))};
}

PENSTOCK_HD PENSTOCK_INLINE void note_error(const matmul_view& v, bad_file which,
                                            std::int64_t code) {
    apps::note_error(v.totals, static_cast<std::uint32_t>(which), code);
}

}  // namespace penstock::matmul
