// Writes of single elements, each by a lane. The lanes of a warp that write together share the pins
// of the pages they meet.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/element.hpp"
#include "penstock/engine/write.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::engine {

#if defined(__CUDACC__)
// Relaxed at device scope, like all writes of frames. `to` is aligned to the element's size.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE void store_element(std::byte* to, const T& value) {
    if constexpr (sizeof(T) == 16) {
        uint4 v;
        std::memcpy(&v, &value, 16);
        penstock::detail::store_frame_16(to, v);
    } else if constexpr (sizeof(T) == 8) {
        std::uint64_t v;
        std::memcpy(&v, &value, 8);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(v) : "memory");
    } else if constexpr (sizeof(T) == 4) {
        std::uint32_t v;
        std::memcpy(&v, &value, 4);
        penstock::detail::store_frame_4(to, v);
    } else if constexpr (sizeof(T) == 2) {
        std::uint16_t v;
        std::memcpy(&v, &value, 2);
        asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(to), "h"(v) : "memory");
    } else {
        std::uint8_t v;
        std::memcpy(&v, &value, 1);
        penstock::detail::store_frame_1(to, v);
    }
}
#endif

// The changes that one lane can make to an element in its frame. An addition returns the former
// value.
template <typename T>
struct put_element {
    T value;
    PENSTOCK_HD T operator()(std::byte* place) const {
#if PENSTOCK_ON_DEVICE
        store_element(place, value);
#else
        lane{}.copy_store(place, reinterpret_cast<const std::byte*>(&value), sizeof value);
#endif
        return value;
    }
};
template <typename T>
struct add_to_element {
    T value;
    PENSTOCK_HD T operator()(std::byte* place) const {
        return fetch_add_relaxed(reinterpret_cast<T*>(place), value);
    }
};

// Whole group, in by the gate of the file. Changes and marks the elements of this page;
// `has_element`: this thread has one. Returns 0, or the reason why the page could not be pinned.
template <typename T, typename Group, typename Change>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t change_in_page(const Group& g, const cache_view& c,
                                                        const file_handle& f,
                                                        std::uint64_t page_number, bool has_element,
                                                        std::uint64_t at, const Change& change,
                                                        T& before) {
    wait_deadline deadline(g, c.frame_wait_ns);
    deadline.dirties(f.slot);
    pinned_page page{};
    if (const std::int64_t code = pin_page(g, c, f, page_number, deadline, page); code != 0)
        return code;
    const std::uint64_t in_page = at & (c.page_bytes() - 1);
    if (has_element) before = change(c.frame_address(page.frame) + in_page);
    atomic_fence();
    g.sync();  // every thread's elements come before any thread's marks
    if (has_element) {
        put_back(&marks_of(c, page.frame)[in_page / 64],
                 marks_within(in_page / 64, in_page, in_page + sizeof(T)));
        grow_to(c, f.slot, at + sizeof(T));
    }
    g.sync();  // every thread's marks come before the leader marks the page dirty
    if (!g.is_leader()) return 0;
    page_word* const word = &c.words[page.word_index];
    name_page(c, page.frame, page_number);
    mark_page_dirty(c, f.slot, word);
    unpin(word);
    return 0;
}

#if defined(__CUDACC__)
// Leader only.
template <typename Group>
PENSTOCK_D inline void note_lost_change(const Group& g, const cache_view& c, std::int64_t code,
                                        std::uint32_t slot, std::uint32_t generation,
                                        std::uint64_t at) {
    note_fault(c, code, slot, generation, at);
    count(g, c, count_errors);
}

// Called together by lanes that each have an element of their own; works page by page. The loop
// ends, for each round finishes the page of its first lane.
template <typename T, typename Change>
PENSTOCK_D PENSTOCK_NOINLINE T change_element(const cache_view& c, std::uint32_t slot,
                                              std::uint64_t at, Change change) {
    const coalesced g(lanes_of_file(c, slot));
    const file_handle f = handle_of(c, slot);
    const std::uint64_t page = at >> c.page_shift;
    T before{};
    std::int64_t entered = 0;
    if (g.is_leader()) entered = begin_change(g, c, slot);
    entered = share_code(g, entered);
    if (entered != 0) {
        if (g.is_leader()) note_lost_change(g, c, entered, slot, f.generation, at);
        return before;
    }
    bool done = false;
    for (std::uint32_t left = g.ballot(true); left != 0; left = g.ballot(!done)) {
        const auto first = static_cast<std::uint32_t>(__ffs(static_cast<int>(left))) - 1u;
        const std::uint64_t now = g.shuffle(page, first), wanted = g.shuffle(at, first);
        const bool has_element = !done && page == now;
        const std::int64_t code = change_in_page(g, c, f, now, has_element, at, change, before);
        if (code != 0 && g.is_leader()) note_lost_change(g, c, code, slot, f.generation, wanted);
        done = done || has_element;
    }
    if (g.is_leader()) go_out(c, slot);
    return before;
}
#endif

#if !defined(__CUDACC_RTC__)
// The same for a host thread.
template <typename T, typename Change>
T change_element_here(const cache_view& c, std::uint32_t slot, std::uint64_t at,
                      const Change& change) {
    const file_handle f = handle_of(c, slot);
    T before{};
    std::int64_t code = begin_change(lane{}, c, slot);
    if (code == 0) {
        code = change_in_page(lane{}, c, f, at >> c.page_shift, true, at, change, before);
        go_out(c, slot);
    }
    if (code != 0) note_fault(c, code, slot, f.generation, at);
    return before;
}
#endif

}  // namespace penstock::engine
