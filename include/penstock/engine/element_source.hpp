// Where the elements of a file lie: what an iterator carries with it, so that a lane reads an
// element without a look at descriptor, record or view.
//
// The page words of a file stay where they are while it is open, so their address is taken once.
// In a runtime that writes, pages by which the file grew since it was opened have words elsewhere;
// a source of these has no words, and each element is found through the table.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/element.hpp"

namespace penstock::engine {

struct element_source {
    const cache_view* cache = nullptr;  // at an address that each reader reaches
    page_word* words = nullptr;         // page words, or a directory; null: ask the table
    const std::byte* frames = nullptr;
    std::uint64_t first = 0;  // byte of the file where the first element begins
    std::uint64_t bytes = 0;  // of all elements
    std::uint32_t slot = 0;
    std::uint32_t page_shift = 0;  // narrower words cost a reader registers
    std::uint32_t leaf_shift = 0;  // `words` is a directory with leaves of 2^leaf_shift words; 0:
                                   // they are page words
    std::uint32_t generation = 0;
};

// The source of the elements of so many bytes in an open file of `size_bytes` bytes, from byte
// `first` on; a piece of an element at the end is left out. `known_pages`: those that the file had
// when it was opened. `at`: the address by which readers reach the view.
PENSTOCK_HD inline element_source make_source(const cache_view& c, const cache_view* at,
                                              const file_handle& f, std::uint64_t known_pages,
                                              std::uint64_t size_bytes, std::uint64_t first,
                                              std::uint64_t element_bytes) {
    element_source out;
    out.cache = at;
    if (pages_of(c, size_bytes) <= known_pages) out.words = c.words + f.table;
    out.frames = c.frames;
    out.first = first;
    out.bytes = size_bytes > first ? (size_bytes - first) / element_bytes * element_bytes : 0;
    out.slot = f.slot;
    out.generation = f.generation;
    out.page_shift = c.page_shift;
    out.leaf_shift = f.two_level ? c.leaf_shift : 0;
    return out;
}

// One lane, for an element that lies outside, or whose page was not in the cache a moment ago.
template <typename T>
PENSTOCK_HD PENSTOCK_NOINLINE T fetch_element(const cache_view* c, std::uint32_t slot,
                                              std::uint32_t generation, std::uint64_t at,
                                              bool is_inside) {
    T value{};
    if (c == nullptr) return value;
    if (!is_inside) {
        // The place of one before the file's first byte has wrapped.
        note_fault(*c, -ERANGE, slot, generation, at > INT64_MAX ? 0 : at);
        return value;
    }
#if PENSTOCK_ON_DEVICE
    return element_missing<T>(*c, slot, at);
#else
    const std::int64_t got = read_file(lane{}, *c, handle_of(*c, slot),
                                       reinterpret_cast<std::byte*>(&value), sizeof(T), at);
    if (got == static_cast<std::int64_t>(sizeof(T))) return value;
    note_fault(*c, got < 0 ? got : -ESTALE, slot, generation, at);
    return T{};
#endif
}

#if defined(__CUDACC__)

// One lane. The word of the page, or null.
PENSTOCK_D PENSTOCK_INLINE page_word* word_at(const element_source& s, std::uint64_t page) {
    if (s.words == nullptr) return nullptr;
    if (s.leaf_shift == 0) return s.words + page;
    // Loads in order: as find_in_leaf.
    const std::uint64_t entry = load_for_read(s.words + (page >> s.leaf_shift));
    if (entry == 0) return nullptr;
    return s.cache->words + (entry - 1 + (page & ((std::uint64_t{1} << s.leaf_shift) - 1)));
}

#endif

// One lane: the element at byte `at`, a multiple of its size. Zero, with a note in the fault record
// of the runtime, if it lies outside or cannot be had.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE T element_at(const element_source& s, std::uint64_t at,
                                         bool is_inside) {
#if PENSTOCK_ON_DEVICE
    if (is_inside) {
        page_word* const word = word_at(s, at >> s.page_shift);
        T value;
        if (word != nullptr &&
            try_element_of<T>([](const std::byte* from) { return load_element<T>(from); }, word,
                              s.frames, s.page_shift, at, value))
            return value;
    }
#endif
    return by_address(&fetch_element<T>)(s.cache, s.slot, s.generation, at, is_inside);
}
// One before the first lies outside by the same comparison: the difference wraps.
template <typename T>
PENSTOCK_HD PENSTOCK_INLINE T element_at(const element_source& s, std::uint64_t at) {
    return element_at<T>(s, at, at - s.first < s.bytes);
}

}  // namespace penstock::engine
