// The bytes of one page of a region: what filling, looking for changes and collecting do to a
// replica and its base. One body for a warp of the GPU and for a CPU thread. The callers and the
// times of the calls are decided elsewhere (penstock/consistency/page_versions.hpp).
//
// A replica may be written by kernels of the user at any time; each byte of it is looked at once by
// each step, so what is taken for changed and what is kept as the base are the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/group/concept.hpp"
#include "penstock/merge.hpp"

namespace penstock::region {

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint64_t mark_bytes =
    page_bytes / 8;  // a bit for each byte that was changed, the first byte's lowest

using page_word = penstock::detail::merge_words;
inline constexpr std::uint64_t page_words = page_bytes / sizeof(page_word);

// Bit i: byte i is not zero. `mask` has 0 or 0xff in each byte.
constexpr PENSTOCK_HD std::uint32_t bits_of(std::uint64_t mask) {
    return static_cast<std::uint32_t>(((mask & 0x8040201008040201ull) * 0x0101010101010101ull) >>
                                      56);
}

// Base and replica take the page, but the replica keeps what differs from its base. `base` null:
// the region is only read.
template <group Group>
PENSTOCK_HD void fill_page(const Group& g, std::byte* replica, std::byte* base,
                           const std::byte* from) {
    auto* const to = reinterpret_cast<page_word*>(replica);
    auto* const kept = reinterpret_cast<page_word*>(base);
    const auto* const fresh = reinterpret_cast<const page_word*>(from);
#if PENSTOCK_ON_DEVICE
#pragma unroll 4
#endif
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size()) {
        const page_word n = fresh[i];
        if (kept == nullptr) {
            to[i] = n;
            continue;
        }
        const page_word r = to[i], b = kept[i];
        to[i] = {penstock::detail::merged_word(n.low, r.low, b.low),
                 penstock::detail::merged_word(n.high, r.high, b.high)};
        kept[i] = n;
    }
    g.sync();
}

template <group Group>
PENSTOCK_HD bool is_changed(const Group& g, const std::byte* replica, const std::byte* base) {
    const auto* const now = reinterpret_cast<const page_word*>(replica);
    const auto* const before = reinterpret_cast<const page_word*>(base);
    std::uint64_t differs = 0;
#if PENSTOCK_ON_DEVICE
#pragma unroll 8
#endif
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size())
        differs |= (now[i].low ^ before[i].low) | (now[i].high ^ before[i].high);
    return !g.all(differs == 0);
}

// The replica's bytes to `staged`, and a mark for each byte that is not as in the base.
template <group Group>
PENSTOCK_HD void collect_page(const Group& g, const std::byte* replica, const std::byte* base,
                              std::byte* staged, std::byte* marked) {
    const auto* const now = reinterpret_cast<const page_word*>(replica);
    const auto* const before = reinterpret_cast<const page_word*>(base);
    auto* const bytes = reinterpret_cast<page_word*>(staged);
    auto* const marks = reinterpret_cast<std::uint16_t*>(marked);
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size()) {
        const page_word r = now[i], b = before[i];
        bytes[i] = r;
        marks[i] = static_cast<std::uint16_t>(
            bits_of(penstock::detail::differing_bytes(r.low, b.low)) |
            bits_of(penstock::detail::differing_bytes(r.high, b.high)) << 8);
    }
    g.sync();
}

// The first `bytes` of what was collected are at home: the base takes them. The replica may have
// changed again since.
template <group Group>
PENSTOCK_HD void adopt_page(const Group& g, std::byte* base, const std::byte* staged,
                            std::uint64_t bytes) {
    auto* const kept = reinterpret_cast<page_word*>(base);
    const auto* const words = reinterpret_cast<const page_word*>(staged);
    const std::uint64_t whole = bytes / sizeof(page_word);
    for (std::uint64_t i = g.rank(); i < whole; i += g.size()) kept[i] = words[i];
    for (std::uint64_t i = whole * sizeof(page_word) + g.rank(); i < bytes; i += g.size())
        base[i] = staged[i];
    g.sync();
}

}  // namespace penstock::region
