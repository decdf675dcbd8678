// The first error of which no group could be told all: an element view has a value to return and no
// room for an error, a gather has room for the error and not for the row.
//
// Fault record, in device memory: claimed 0 -> 1 by compare-and-swap, the group that does it writes
// the rest, `ready` last. The host reads it between kernels and sets it back to zero. Later errors
// are counted and not kept.
#pragma once

#include "penstock/engine/file_word.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

// Leader only. `offset`: the byte of the file that was wanted.
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
