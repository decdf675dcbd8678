// Three-way merge of copies of a page that several writers changed separately: finds the changes by
// comparing a changed copy with a pristine one, and stores them in a third.
//
// For programs that keep copies of their own. The cache does the same for pages with writable
// mappings (map_write), by marks. Bytes that differ from the pristine copy were changed. If two
// writers changed one byte, the change that is merged last wins. A store of the value that was
// there before cannot be seen, and does not count as a change.
//
// (Multiple-writer protocols by twins and diffs: Carter, Bennett and Zwaenepoel, "Implementation
// and performance of Munin", SOSP 1991.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/group/changed_bytes.hpp"
#include "penstock/group/concept.hpp"

namespace penstock {

namespace detail {

// Has 0xff in each byte in which the words differ.
constexpr PENSTOCK_HD std::uint64_t differing_bytes(std::uint64_t a, std::uint64_t b) {
    constexpr std::uint64_t low = 0x7f7f7f7f7f7f7f7full;
    const std::uint64_t x = a ^ b, top = (((x & low) + low) | x) & ~low;
    return (top >> 7) * 0xff;
}
constexpr PENSTOCK_HD std::uint64_t merged_word(std::uint64_t into, std::uint64_t changed,
                                                std::uint64_t pristine) {
    const std::uint64_t mask = differing_bytes(changed, pristine);
    return (into & ~mask) | (changed & mask);
}

struct alignas(16) merge_words {
    std::uint64_t low, high;
};

}  // namespace detail

// Whole group. Each byte of `changed` that differs from that of `pristine` replaces the byte of
// `into`. Each of the three has `bytes` bytes, a multiple of 16, is 16-byte aligned, and lies in
// memory that every thread of the group reaches. No other thread may use `into` meanwhile. No
// errors, no waiting. Returns when every thread of the group may read the whole result. Cost: reads
// changed and pristine, and where they differ reads and writes `into`, 16 bytes at a time.
template <group Group>
PENSTOCK_HD void merge(const Group& g, void* into, const void* changed, const void* pristine,
                       std::uint64_t bytes) {
    auto* const to = static_cast<detail::merge_words*>(into);
    const auto* const now = static_cast<const detail::merge_words*>(changed);
    const auto* const before = static_cast<const detail::merge_words*>(pristine);
#if PENSTOCK_ON_DEVICE
#pragma unroll 4
#endif
    for (std::uint64_t i = g.rank(); i < bytes / 16; i += g.size()) {
        const detail::merge_words a = now[i], b = before[i];
        if (((a.low ^ b.low) | (a.high ^ b.high)) == 0) continue;
        const detail::merge_words old = to[i];
        to[i] = {detail::merged_word(old.low, a.low, b.low),
                 detail::merged_word(old.high, a.high, b.high)};
    }
    g.sync();
}

}  // namespace penstock
