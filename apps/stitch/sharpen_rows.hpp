// Rows of a convolution on a CPU, by code for several kinds of processors; every kind finds the
// same bits.
#pragma once

#include <cstdint>

#include "sharpen.hpp"

namespace penstock::stitch {

// The widest row that is asked for.
inline constexpr std::uint32_t most_columns = 1024;

// Row `out` from the rows above, at and below. Each has `left` pixels (0 or 1) before its first and
// `right` behind its last.
using sharpen_row = void(const std::uint16_t* above, const std::uint16_t* at,
                         const std::uint16_t* below, std::uint16_t* out, std::uint32_t count,
                         bool left, bool right);
// A row as the file has it.
using store_row = void(const std::uint16_t* from, std::uint16_t* to, std::uint32_t count);

struct row_kernel {
    sharpen_row* sharpen;
    store_row* store;
    const char* name;
};

extern const row_kernel plain_rows, avx2_rows;  // avx2_rows: only where such a processor can be
const row_kernel& chosen_rows();

}  // namespace penstock::stitch
