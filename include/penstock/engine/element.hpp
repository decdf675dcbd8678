// Reads of single elements, each by a lane. If the page is in the cache, an access is a look-up,
// one load and a re-check. If it is not, the lanes of a warp that miss together load the missing
// pages together, each page once, with up to max_pending_loads of them in flight.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/through.hpp"
#include "penstock/group/lane.hpp"

#if defined(__CUDACC__)
#include "penstock/group/coalesced.cuh"
#endif

namespace penstock::engine {

// A type that one access can load without being torn.
template <typename T>
inline constexpr bool is_element = std::is_trivially_copyable_v<T> &&
                                   (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 ||
                                    sizeof(T) == 8 || sizeof(T) == 16);

// The same, or one that up to four accesses of 16 bytes load between two looks at the page word.
// Each access may find the bytes of another moment, as the accesses of a copy may.
template <typename T>
inline constexpr bool is_wide_element = is_element<T> || (std::is_trivially_copyable_v<T> &&
                                                          (sizeof(T) == 32 || sizeof(T) == 64));

// Some bits of every access by which the element was loaded.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t bits_of(const T& value) {
    std::uint32_t words[(sizeof(T) + 3) / 4] = {};
    std::memcpy(words, &value, sizeof value);
    std::uint32_t bits = words[0];
    if constexpr (sizeof(T) > 16) {
        PENSTOCK_UNROLL
        for (std::uint32_t i = 4; i < sizeof(T) / 4; i += 4) bits |= words[i];
    }
    return bits;
}

// One lane. Returns true if the page that the word is of is in the cache, and `out` is then its
// element at byte `at` of the file. `load` fetches an element from a frame that may change hands
// meanwhile: each of its accesses is relaxed and may find another page's bytes.
template <typename T, typename Load>
PENSTOCK_HD PENSTOCK_INLINE bool try_element_of(const Load& load, page_word* word,
                                                const std::byte* frames, std::uint32_t page_shift,
                                                std::uint64_t at, T& out) {
    const page_word seen = load_for_read(word);
    if (!is_valid(seen)) return false;
    const std::uint64_t in_page = at & ((std::uint64_t{1} << page_shift) - 1);
    out = load(frames + (std::uint64_t{frame_of(seen)} << page_shift) + in_page);
    if (!unchanged_since_load(word, seen, bits_of(out), page_shift >> 31)) return false;
    touch(word, seen);
    return true;
}

// The same, with the page found in the table.
template <typename T, typename Load>
PENSTOCK_HD PENSTOCK_INLINE bool try_element_by(const Load& load, const cache_view& c,
                                                const file_handle& f, std::uint64_t at, T& out) {
    const std::uint64_t word_index = find_word(c, f, at >> c.page_shift);
    if (word_index == no_word) return false;
    return try_element_of<T>(load, &c.words[word_index], c.frames, c.page_shift, at, out);
}

// One lane, whose element's page was not in the cache a moment ago. The same as read_through for a
// single element; a fence of the whole device stands between value and second looks.
template <typename T, typename Load>
PENSTOCK_HD PENSTOCK_INLINE bool try_element_through_by(const Load& load, const cache_view& c,
                                                        const file_handle& f, std::uint64_t at,
                                                        T& out) {
    through_look look;
    look_through(c, f, at, sizeof(T), look);
    bool good = look.length == sizeof(T);
    if (good) {
        end_load_for_read();
        out = load(look.bytes);
        begin_recheck();
        good = is_source_as_seen(c, f, look) && are_pages_as_seen(c, f, at, look);
    }
    leave_neighbours(c, look.neighbour);
    if (good) count_through(lane{}, c, look);
    return good;
}

#if defined(__CUDACC__)

// Relaxed at device scope, like all reads of frames (group/gpu_groups.cuh). `from` is aligned to
// the element's size.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE T load_element(const std::byte* from) {
    T out;
    if constexpr (sizeof(T) > 16) {
        uint4 v[sizeof(T) / 16];
        PENSTOCK_UNROLL
        for (std::uint32_t i = 0; i < sizeof(T) / 16; ++i)
            v[i] = penstock::detail::load_frame_16(from + 16 * i);
        std::memcpy(&out, v, sizeof(T));
    } else if constexpr (sizeof(T) == 16) {
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

// Of a frame or of a window, at system scope.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE T load_shared_element(const std::byte* from) {
    T out;
    if constexpr (sizeof(T) > 16) {
        uint4 v[sizeof(T) / 16];
        PENSTOCK_UNROLL
        for (std::uint32_t i = 0; i < sizeof(T) / 16; ++i)
            v[i] = penstock::detail::load_host_16(from + 16 * i);
        std::memcpy(&out, v, sizeof(T));
    } else if constexpr (sizeof(T) == 16) {
        const uint4 v = penstock::detail::load_host_16(from);
        std::memcpy(&out, &v, 16);
    } else if constexpr (sizeof(T) == 8) {
        std::uint64_t v;
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(from));
        std::memcpy(&out, &v, 8);
    } else if constexpr (sizeof(T) == 4) {
        const std::uint32_t v = penstock::detail::load_host_4(from);
        std::memcpy(&out, &v, 4);
    } else if constexpr (sizeof(T) == 2) {
        std::uint16_t v;
        asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(v) : "l"(from));
        std::memcpy(&out, &v, 2);
    } else {
        const std::byte v = penstock::detail::load_host_1(from);
        std::memcpy(&out, &v, 1);
    }
    return out;
}

// The same with the loads of a GPU.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE bool try_element(const cache_view& c, const file_handle& f,
                                            std::uint64_t at, T& out) {
    return try_element_by([](const std::byte* from) { return load_element<T>(from); }, c, f, at,
                          out);
}

// The same with the loads of a GPU.
template <typename T>
PENSTOCK_D PENSTOCK_INLINE bool try_element_through(const cache_view& c, const file_handle& f,
                                                    std::uint64_t at, T& out) {
    return try_element_through_by(
        [](const std::byte* from) { return load_shared_element<T>(from); }, c, f, at, out);
}

// Which lanes of those that call together want elements of the caller's file. Runtimes number their
// files alike, so a number alone would bring lanes of two caches together.
PENSTOCK_D PENSTOCK_INLINE std::uint32_t lanes_of_file(const cache_view& c, std::uint32_t slot) {
    const auto place = reinterpret_cast<std::uintptr_t>(&c.file_records[slot]);
    return __match_any_sync(__activemask(), static_cast<unsigned long long>(place));
}

// Called together by lanes that each want an element of their own. If a lane's page cannot be
// loaded, the lane gets zero and the fault record gets the reason. The loop ends like every read:
// each round delivers or fails at least the first page.
template <typename T>
PENSTOCK_D PENSTOCK_NOINLINE T element_missing(const cache_view& c, std::uint32_t slot,
                                               std::uint64_t at) {
    const coalesced g(lanes_of_file(c, slot));
    const file_handle f = handle_of(c, slot);
    const std::uint64_t page = at >> c.page_shift;
    T value;
    std::memset(&value, 0, sizeof value);
    bool have = false;
    // Once for all: what these lanes want of their pages, taken together.
    const std::uint64_t wanted = g.size() * sizeof(T);
    const bool enters =
        g.is_leader() && admits(g, c, slot, page, wanted, unwanted_of_page(c, wanted));
    bool through = !g.broadcast(enters);
    const auto consume = [&](std::uint64_t loaded, const std::byte* frame) {
        if (have || loaded != page) return;
        value = load_element<T>(frame + (at & (c.page_bytes() - 1)));
        have = true;
    };
    for (;;) {
        if (!have) have = try_element(c, f, at, value);
        if (!have && through) have = try_element_through(c, f, at, value);
        through = false;
        if (g.ballot(!have) == 0) return value;
        // `firsts` has one lane for each missing page; the pages are in the order of these lanes.
        const std::uint32_t peers = g.match(have ? ~std::uint64_t{0} : page);
        const std::uint32_t firsts =
            g.ballot(!have && static_cast<std::uint32_t>(__ffs(static_cast<int>(peers))) - 1u ==
                                  g.lane_number());
        const auto pages = static_cast<std::uint64_t>(__popc(firsts));
        const auto page_of = [&](std::uint64_t i) {
            return g.shuffle(page, __fns(firsts, 0, static_cast<int>(i) + 1));
        };
        wait_deadline deadline(g, c.frame_wait_ns);
        const std::uint64_t first = page_of(0);
        std::int64_t code = load_listed(g, c, f, pages, page_of, deadline, consume);
        if (code == 0) {
            pinned_page pinned{};  // another group has the first page
            code = pin_page(g, c, f, first, deadline, pinned);
            if (code == 0) {
                consume(first, c.frame_address(pinned.frame));
                g.sync();  // every thread has read before the leader unpins
                if (g.is_leader()) unpin(&c.words[pinned.word_index]);
            }
        }
        if (code >= 0 && c.read_ahead_pages != 0)
            read_ahead(g, c, slot, page_of(pages - 1) << c.page_shift, 1);
        if (code < 0) {
            const std::uint64_t wanted =
                g.shuffle(at, static_cast<std::uint32_t>(__ffs(static_cast<int>(firsts))) - 1u);
            if (g.is_leader()) {
                note_fault(c, code, slot, f.generation, wanted);
                count(g, c, count_errors);
            }
            have = have || page == first;
        }
    }
}

#endif

// An element of a page that is pinned.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE T pinned_element(const std::byte* from) {
#if PENSTOCK_ON_DEVICE
    return load_element<T>(from);
#else
    T out;
    std::memcpy(&out, from, sizeof out);
    return out;
#endif
}

// One thread of the group: visits its share of the `n` elements from `from` on, with four loads in
// flight.
template <typename T, typename Group, typename Visit>
PENSTOCK_HD PENSTOCK_INLINE void visit_page(const Group& g, const std::byte* from,
                                            std::uint64_t first, std::uint64_t n,
                                            const Visit& visit) {
    const std::uint64_t stride = g.size();
    std::uint64_t k = g.rank();
    for (; k + 3 * stride < n; k += 4 * stride) {
        const T a = pinned_element<T>(from + k * sizeof(T)),
                b = pinned_element<T>(from + (k + stride) * sizeof(T));
        const T c = pinned_element<T>(from + (k + 2 * stride) * sizeof(T)),
                d = pinned_element<T>(from + (k + 3 * stride) * sizeof(T));
        visit(first + k, a);
        visit(first + k + stride, b);
        visit(first + k + 2 * stride, c);
        visit(first + k + 3 * stride, d);
    }
    for (; k < n; k += stride) visit(first + k, pinned_element<T>(from + k * sizeof(T)));
}

// The part of a visited stretch that lies in one page.
template <typename T>
struct page_stretch {
    std::uint64_t page, first;  // number of its first element
    std::uint32_t in_page, n;   // bytes of the page before it; elements
};

template <typename T>
PENSTOCK_HD PENSTOCK_INLINE page_stretch<T> stretch_at(const cache_view& c,
                                                       std::uint64_t first_byte,
                                                       std::uint64_t first, std::uint64_t wanted) {
    const std::uint64_t at = first_byte + first * sizeof(T), in_page = at & (c.page_bytes() - 1),
                        room = (c.page_bytes() - in_page) / sizeof(T);
    return {at >> c.page_shift, first, static_cast<std::uint32_t>(in_page),
            static_cast<std::uint32_t>(room < wanted ? room : wanted)};
}

// The unit of a load where elements follow each other; neither half is torn.
struct alignas(16) two_words {
    std::uint64_t a, b;
};

// One thread: visits those elements of the 16 bytes at `place` of the page, loaded as `bytes`, that
// belong to the stretch.
template <typename T, typename Visit>
PENSTOCK_HD PENSTOCK_INLINE void visit_unit(const page_stretch<T>& s, std::uint32_t place,
                                            const two_words& bytes, const Visit& visit) {
    constexpr std::uint32_t held = 16 / sizeof(T);
    T elements[held];
    std::memcpy(elements, &bytes, 16);
    // Counted from the stretch's first element: an element before it gets a number that is too
    // large.
    const auto k = static_cast<std::uint32_t>(static_cast<std::int32_t>(place - s.in_page) /
                                              static_cast<std::int32_t>(sizeof(T)));
    PENSTOCK_UNROLL
    for (std::uint32_t i = 0; i < held; ++i)
        if (k + i < s.n) visit(s.first + (k + i), elements[i]);
}

// Whole group. Visits the elements of the stretch without a pin, if their page is in the cache.
// Each thread has four units of 16 bytes in flight; it visits them once a second look at the page
// word has shown that the page kept its frame. `load` fetches a unit from a frame that may change
// hands meanwhile: its accesses are relaxed and may find another page's bytes. `early` is a look
// ahead at the page word. Returns true if all elements were visited; else `s` is the rest.
template <typename T, typename Load, typename Group, typename Visit>
PENSTOCK_HD PENSTOCK_INLINE bool try_visit_by(const Load& load, const Group& g, const cache_view& c,
                                              const file_handle& f, page_word early,
                                              page_stretch<T>& s, const Visit& visit) {
    constexpr std::uint32_t in_flight = 4;
    std::uint64_t word_index = find_word(c, f, s.page);
    if (has_leaves(c, f))
        word_index = g.broadcast(word_index);  // a leaf may appear between two threads' loads
    if (word_index == no_word) return false;
    page_word* const word = &c.words[word_index];
    page_word seen = early;
    if (is_valid(seen)) end_load_for_read();
    else seen = load_for_read(word);
    if (!g.all(is_valid(seen) && !(g.is_leader() && stop_code_in_turn(c) != 0))) return false;
    const std::byte* const frame = c.frame_address(frame_of(seen));
    const std::uint32_t end = s.in_page + s.n * static_cast<std::uint32_t>(sizeof(T)),
                        step = g.size() * 16u;
    for (std::uint32_t from = s.in_page & ~15u; from < end; from += in_flight * step) {
        two_words units[in_flight];
        std::uint32_t bits = 0;
        PENSTOCK_UNROLL
        for (std::uint32_t i = 0; i < in_flight; ++i) {
            const std::uint32_t place = from + i * step + g.rank() * 16u;
            if (place < end) units[i] = load(frame + place);
            else units[i] = two_words{};
        }
        PENSTOCK_UNROLL
        for (std::uint32_t i = 0; i < in_flight; ++i)
            bits |= static_cast<std::uint32_t>(units[i].a);
        if (!g.all(unchanged_since_load(word, seen, bits, c.page_shift >> 31))) {
            const std::uint32_t done =
                from > s.in_page ? (from - s.in_page) / static_cast<std::uint32_t>(sizeof(T)) : 0;
            s = {s.page, s.first + done, s.in_page + done * static_cast<std::uint32_t>(sizeof(T)),
                 s.n - done};
            return false;
        }
        PENSTOCK_UNROLL
        for (std::uint32_t i = 0; i < in_flight; ++i)
            visit_unit<T>(s, from + i * step + g.rank() * 16u, units[i], visit);
    }
    if (g.is_leader()) {
        touch(word, seen);
        count(g, c, count_hits);
    }
    return true;
}

// The end of a visit to a pinned page, also if a visitor on the host throws.
template <typename Group>
struct visit_end {
    const Group& g;
    page_word* word;
    PENSTOCK_HD visit_end(const Group& group, page_word* pinned) : g(group), word(pinned) {}
    PENSTOCK_HD ~visit_end() {
        g.sync();  // every thread has read before the leader unpins
        if (g.is_leader()) unpin(word);
    }
    visit_end(const visit_end&) = delete;
    visit_end& operator=(const visit_end&) = delete;
};

// Whole group. Visits the elements of the stretch in a page that it pins. Returns 0, or a negative
// errno if it visited nothing.
template <typename T, typename Group, typename Visit>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t visit_pinned(const Group& g, const cache_view& c,
                                                      const file_handle& f,
                                                      const page_stretch<T>& s,
                                                      const Visit& visit) {
    pinned_page now{};
    if (const std::int64_t code = map_page(g, c, f, s.page, now); code != 0) return code;
    g.sync();  // the leader's acquire comes before every thread's reads of the frame
    const visit_end<Group> end(g, &c.words[now.word_index]);
    visit_page<T>(g, c.frame_address(now.frame) + s.in_page, s.first, s.n, visit);
    return 0;
}

// Whole group. Visits `wanted` elements in the order of their pages. Returns how many it visited,
// or a negative errno if the first page could not be loaded. Groups on a GPU pin only pages that
// they had to load, and look ahead at the next page's word; groups on a processor pin every page
// once.
template <typename T, typename Group, typename Visit>
PENSTOCK_HD std::int64_t visit_elements(const Group& g, const cache_view& c, const file_handle& f,
                                        std::uint64_t first_byte, std::uint64_t first,
                                        std::uint64_t wanted, const Visit& visit) {
    std::uint64_t done = 0;
    [[maybe_unused]] page_word early = 0;
    while (done < wanted) {
        page_stretch<T> s = stretch_at<T>(c, first_byte, first + done, wanted - done);
        const std::uint64_t in_this_page = s.n;
#if PENSTOCK_ON_DEVICE
        const page_word seen = early;
        early = done + s.n < wanted ? look_ahead(c, f, (s.page + 1) << c.page_shift) : 0;
        const auto load = [](const std::byte* from) {
            const ulonglong2 both = penstock::detail::load_frame_2x8(from);
            return two_words{both.x, both.y};
        };
        if (try_visit_by<T>(load, g, c, f, seen, s, visit)) {
            done += in_this_page;
            continue;
        }
#endif
        const std::uint64_t visited = in_this_page - s.n;
        if (const std::int64_t code = visit_pinned<T>(g, c, f, s, visit); code != 0)
            return done + visited > 0 ? static_cast<std::int64_t>(done + visited) : code;
        done += in_this_page;
    }
    return static_cast<std::int64_t>(done);
}

}  // namespace penstock::engine
