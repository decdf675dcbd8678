// Keeps the first error that a call could not report in full: an element view returns a value and
// has no room for an error, and a gather has room for the error but not for the row.
//
// The fault record lies in device memory. A group moves `claimed` from 0 to 1 by compare-and-swap,
// then writes the rest, `ready` last. The host reads the record between kernels and sets it back to
// zero. Later errors are counted but not kept.
#pragma once

#include "penstock/engine/file_word.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

// Leader only. `offset`: the byte of the file that the caller wanted.
PENSTOCK_HD inline void note_fault(const cache_view& c, std::int64_t code, std::uint32_t slot,
                                   std::uint32_t generation, std::uint64_t offset) {
    if (c.fault == nullptr || !try_lock(&c.fault->claimed)) return;
    c.fault->slot = slot;
    c.fault->generation = generation;
    c.fault->offset = offset;
    c.fault->code = code;
}

// Leader only. The same for row `row`, which begins at byte `offset`.
PENSTOCK_HD inline void note_row_fault(const cache_view& c, std::int64_t code, std::uint32_t slot,
                                       std::uint32_t generation, std::uint64_t offset,
                                       std::uint64_t row) {
    if (c.fault == nullptr || !try_lock(&c.fault->claimed)) return;
    c.fault->slot = slot;
    c.fault->generation = generation;
    c.fault->offset = offset;
    c.fault->row = row;
    c.fault->is_row = 1;
    c.fault->code = code;
}

}  // namespace penstock::engine
