// Elements by lane: a look-up and a re-check around one load where the page is in the cache; where it is not, the lanes of a
// warp that miss together load what they miss together, each page once and up to max_pending_loads of them in flight.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "penstock/engine/fault.hpp"
#include "penstock/engine/read.hpp"

#if defined(__CUDACC__)
#include "penstock/group/coalesced.cuh"
#endif

namespace penstock::engine {

// What one access can load without being torn.
template <typename T>
inline constexpr bool is_element = std::is_trivially_copyable_v<T> && (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 ||
                                                                       sizeof(T) == 8 || sizeof(T) == 16);

#if defined(__CUDACC__)

// Relaxed at device scope, as all reads of frames (group/device_copy.cuh). `from` is aligned to the element's size.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE T load_element(const std::byte* from) {
    T out;
    if constexpr (sizeof(T) == 16) {
        const uint4 v = penstock::detail::load_frame_16(from);
        std::memcpy(&out, &v, 16);
    } else if constexpr (sizeof(T) == 8) {
        std::uint64_t v;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(from));
        std::memcpy(&out, &v, 8);
    } else if constexpr (sizeof(T) == 4) {
        const std::uint32_t v = penstock::detail::load_frame_4(from);
        std::memcpy(&out, &v, 4);
    } else if constexpr (sizeof(T) == 2) {
        std::uint16_t v;
        asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(v) : "l"(from));
        std::memcpy(&out, &v, 2);
    } else {
        const std::byte v = penstock::detail::load_frame_1(from);
        std::memcpy(&out, &v, 1);
    }
    return out;
}

// One lane. True if the element's page is in the cache, and then `out` is the element.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE bool try_element(const cache_view& c, const file_handle& f, std::uint64_t at, T& out) {
    const std::uint64_t word_index = find_word(c, f, at >> c.page_shift);
    if (word_index == no_word) return false;
    page_word* const word = &c.words[word_index];
    const page_word seen = observe(word);
    if (!is_valid(seen)) return false;
    out = load_element<T>(c.frame_address(frame_of(seen)) + (at & (c.page_bytes() - 1)));
    if (!unchanged(word, seen)) return false;
    touch(word, seen);
    return true;
}

// The lanes that call together, each for an element of its own. A lane whose page cannot be had gets zero, and the fault
// record the reason. Ends like every read: each round delivers or fails at least the first page.
template <typename T>
PENSTOCK_D PENSTOCK_NOINLINE T element_missing(const cache_view& c, std::uint32_t slot, std::uint64_t at) {
    const coalesced g(__match_any_sync(__activemask(), slot));
    const file_handle f = handle_of(c, slot);
    const std::uint64_t page = at >> c.page_shift;
    T value;
    std::memset(&value, 0, sizeof value);
    bool have = false;
    const auto consume = [&](std::uint64_t loaded, const std::byte* frame) {
        if (have || loaded != page) return;
        value = load_element<T>(frame + (at & (c.page_bytes() - 1)));
        have = true;
    };
    for (;;) {
        if (!have) have = try_element(c, f, at, value);
        if (g.ballot(!have) == 0) return value;
        // One lane for each page that is missing; the pages in the order of these lanes.
        const std::uint32_t peers = g.match(have ? ~std::uint64_t{0} : page);
        const std::uint32_t firsts = g.ballot(!have && static_cast<std::uint32_t>(__ffs(static_cast<int>(peers))) - 1u == g.lane_number());
        const auto pages = static_cast<std::uint64_t>(__popc(firsts));
        const auto page_of = [&](std::uint64_t i) { return g.shuffle(page, __fns(firsts, 0, static_cast<int>(i) + 1)); };
        patience deadline(g, c.frame_wait_ns);
        const std::uint64_t first = page_of(0);
        std::int64_t code = load_listed(g, c, f, pages, page_of, deadline, consume);
        if (code == 0) {
            pinned_page pinned{};  // somebody else has the first page
            code = pin_page(g, c, f, first, deadline, pinned);
            if (code == 0) {
                consume(first, c.frame_address(pinned.frame));
                g.sync();  // everybody has read before the leader unpins
                if (g.is_leader()) unpin(&c.words[pinned.word_index]);
            }
        }
        if (code < 0) {
            const std::uint64_t wanted = g.shuffle(at, static_cast<std::uint32_t>(__ffs(static_cast<int>(firsts))) - 1u);
            if (g.is_leader()) {
                note_fault(c, code, slot, f.generation, wanted);
                count(g, c, count_errors);
            }
            have = have || page == first;
        }
    }
}

#endif

}  // namespace penstock::engine
