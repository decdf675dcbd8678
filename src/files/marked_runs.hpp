// The runs of marked bytes of a page: a bit for each byte, in 64-bit words, first byte in the
// lowest bit.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "penstock/base/atomic.hpp"

namespace penstock::host {

// Calls each(begin, end) for each run of the first `bytes` bytes, in order, until that returns
// false, and returns what it returned last, or true. A run that goes on behind these bytes ends
// with them. `marks` is aligned as its words.
//
// The words may lie in memory that a device changes meanwhile: each is read once, so that the runs
// are disjoint and in order whatever it holds. Costs a step for each word and two for each run.
template <typename Each>
bool for_marked_runs(const std::byte* marks, std::uint64_t bytes, const Each& each) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(marks);
    std::uint64_t begin = 0, highest_before = 0;
    bool inside = false;
    for (std::uint64_t first = 0; first < bytes; first += 64) {
        // Relaxed: the marks are known to be there, or do not have to be of one moment.
        std::uint64_t word = atomic_load<order::relaxed, scope::system>(words + first / 64);
        if (bytes - first < 64) word &= (std::uint64_t{1} << (bytes - first)) - 1;
        // A bit at the first byte of each run, and at the first one behind it.
        std::uint64_t edges = word ^ (word << 1 | highest_before);
        highest_before = word >> 63;
        for (; edges != 0; edges &= edges - 1) {
            const std::uint64_t at = first + static_cast<std::uint64_t>(std::countr_zero(edges));
            inside = !inside;
            if (inside) begin = at;
            else if (!each(begin, at)) return false;
        }
    }
    return !inside || each(begin, bytes);
}

}  // namespace penstock::host
