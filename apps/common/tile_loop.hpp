// The inner loop of a tile on CPU threads: some rows with the columns of panels, sums in registers,
// each made one number after the other. For files that are compiled for one kind of processor each.
#pragma once

#include <cstdint>

namespace penstock::apps {

namespace {

// rows: pointers to `floats` numbers. packed: of the columns, in panels of so many side by side:
// for each number of a row, that of all columns of the panel. sums: Columns for each row.
// Add::add(sum, row, column) on vectors. Internal linkage, as its vectors.
template <typename Vector, std::uint32_t Vectors, std::uint32_t Rows, std::uint32_t Columns,
          typename Add>
[[maybe_unused]] void add_tile(const float* const* rows, const float* packed, std::uint32_t floats,
                               float* sums) {
    constexpr std::uint32_t width = Vector::lanes * Vectors;
    for (std::uint32_t panel = 0; panel < Columns; panel += width, packed += floats * width) {
        typename Vector::type sum[Rows][Vectors];
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                sum[i][j] = Vector::load(sums + i * Columns + panel + j * Vector::lanes);
        for (std::uint32_t k = 0; k < floats; ++k) {
            typename Vector::type column[Vectors];
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                column[j] = Vector::load(packed + k * width + j * Vector::lanes);
#pragma GCC unroll 8
            for (std::uint32_t i = 0; i < Rows; ++i) {
                const typename Vector::type row = Vector::broadcast(rows[i][k]);
#pragma GCC unroll 8
                for (std::uint32_t j = 0; j < Vectors; ++j)
                    sum[i][j] = Add::template add<Vector>(sum[i][j], row, column[j]);
            }
        }
#pragma GCC unroll 8
        for (std::uint32_t i = 0; i < Rows; ++i)
#pragma GCC unroll 8
            for (std::uint32_t j = 0; j < Vectors; ++j)
                Vector::store(sums + i * Columns + panel + j * Vector::lanes, sum[i][j]);
    }
}

}  // namespace

}  // namespace penstock::apps
