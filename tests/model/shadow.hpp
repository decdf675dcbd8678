// The oracle of the model test, without state and without an operating system, so that GPU kernels
// can use it too.
//
// Every byte of every version of every file is a pure function of (seed, file, version, offset); so
// is a version's size, and whether it exists at all. A reader therefore needs no shadow copy: it
// computes what it should have got.
//
// Which versions a reader may see follows from close-to-open. For each file a `file_state` keeps
//   begun   the newest version that the host has begun to make,
//   done    the newest version that the host has finished,
//   period  (floor, users): users counts the users that open, have open or close the file;
//           floor is `done` as it was when users last rose from 0.
// While users > 0 a reader may see any version from floor to begun, byte by byte, since the host
// changes files in place while they are read. If the two are equal, it must see exactly that
// version and no error.
//
// Where a page came from does not widen this. A request that meets an end of file that has come
// nearer gives -ESTALE. A window gives no error: its page holds, each byte for itself,
//   before the end of the file  what the file holds now (write(2) is seen),
//   behind it, to the end of the operating system's page   zero,
//   in the pages after that     what they held when they were cut off, also when the file has grown
//                               again since;
// on a real GPU the operating system may treat several pages that it keeps as one as it treats the
// last one: zero all that was cut off, and let go of the rest, whose bytes then stay what they
// were. All these are bytes of a version from floor to begun, or a zero where one of them has no
// byte: nothing older, because a file that changed while no user had it open is another file to
// Penstock, and has no window. The drill (model/drill.hpp) knows which of them it must be.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::model {

// Constants of one run, equal everywhere.
struct world {
    std::uint64_t seed = 1;
    std::uint64_t page_bytes = 4096;
    // Most lengths of accesses are chosen by this; 0: by page_bytes. For groups of few threads,
    // which take long to judge large pages.
    std::uint64_t usual_bytes = 0;
    std::uint32_t small_files = 24;
    std::uint32_t big_files = 2;  // sparse, with two-level tables; the host never changes them
    std::uint64_t big_pages = 1 << 18;
    std::uint32_t small_pages = 20;    // most pages of a small file
    std::uint32_t names_per_file = 3;  // "f7", "./f7" and the link "l7"

    constexpr PENSTOCK_HD std::uint32_t files() const { return small_files + big_files; }
    constexpr PENSTOCK_HD bool is_big(std::uint32_t file) const { return file >= small_files; }
};

// Shared by actors and host; see above. 64 bytes so that files do not disturb one another.
struct alignas(64) file_state {
    std::uint64_t period;  // floor in the high half, users in the low half
    std::uint64_t begun;
    std::uint64_t done;
};

struct version_range {
    std::uint64_t floor, newest;
    constexpr PENSTOCK_HD bool exact() const { return floor == newest; }
};

constexpr PENSTOCK_HD std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
    return mix64(mix64(mix64(a + 0x9e3779b97f4a7c15ull) ^ b) + 0x9e3779b97f4a7c15ull * (c + 1));
}

// One version in twelve is an absence: the host removed the file.
constexpr PENSTOCK_HD bool exists(const world& w, std::uint32_t file, std::uint64_t version) {
    return version == 0 || w.is_big(file) || mix(w.seed, file, version ^ 0xabcdef) % 12 != 0;
}

// Three versions in a row have one size, so that an equal size must not be taken for an equal file.
constexpr PENSTOCK_HD std::uint64_t size_of(const world& w, std::uint32_t file,
                                            std::uint64_t version) {
    const std::uint64_t h = mix(w.seed ^ 0x51e, file, version / 3);
    if (w.is_big(file)) return w.big_pages * w.page_bytes - h % w.page_bytes;
    const std::uint64_t pages = 1 + (h >> 8) % w.small_pages;
    switch (h % 16) {
        case 0: return 0;
        case 1: return 1 + (h >> 32) % 15;
        case 2: return pages * w.page_bytes;
        case 3: return pages * w.page_bytes - 1;
        case 4: return (pages - 1) * w.page_bytes + 1;
        default: return (pages - 1) * w.page_bytes + (h >> 32) % w.page_bytes;
    }
}

// In place (the inode stays) or by a new file renamed over the old name.
constexpr PENSTOCK_HD bool made_in_place(const world& w, std::uint32_t file,
                                         std::uint64_t version) {
    return mix(w.seed ^ 0x91ace, file, version) % 3 != 0;
}

// A big file is a hole except for these regions; the first lies at its end, the second across the
// border of two leaves of its page table, wherever a power of two of pages is such a border.
inline constexpr std::uint32_t big_regions = 6, region_pages = 12;
constexpr PENSTOCK_HD std::uint64_t region_start(const world& w, std::uint32_t file,
                                                 std::uint32_t region) {
    const std::uint64_t last = w.big_pages - region_pages;
    if (region == 0) return last;
    if (region == 1) return w.big_pages / 2 - region_pages / 2;
    return mix(w.seed ^ 0xb16, file, region) % last;
}

constexpr PENSTOCK_HD bool in_hole(const world& w, std::uint32_t file, std::uint64_t offset) {
    const std::uint64_t page = offset / w.page_bytes;
    for (std::uint32_t i = 0; i < big_regions; ++i) {
        const std::uint64_t start = region_start(w, file, i);
        if (page >= start && page < start + region_pages) return false;
    }
    return true;
}

// A version's own number, which all of its words are made from.
constexpr PENSTOCK_HD std::uint64_t version_key(const world& w, std::uint32_t file,
                                                std::uint64_t version) {
    return mix64(w.seed * 0x9e3779b97f4a7c15ull + (std::uint64_t{file} << 40 | version));
}
// The eight bytes at `word` * 8, the first in the lowest bits.
constexpr PENSTOCK_HD std::uint64_t word_by_key(const world& w, std::uint32_t file,
                                                std::uint64_t key, std::uint64_t word) {
    if (w.is_big(file) && in_hole(w, file, word * 8)) return 0;
    return mix64(key + word * 0xd6e8feb86659fd93ull);
}
constexpr PENSTOCK_HD std::uint64_t word_of(const world& w, std::uint32_t file,
                                            std::uint64_t version, std::uint64_t word) {
    return word_by_key(w, file, version_key(w, file, version), word);
}

constexpr PENSTOCK_HD std::uint8_t byte_of(const world& w, std::uint32_t file,
                                           std::uint64_t version, std::uint64_t offset) {
    return static_cast<std::uint8_t>(word_of(w, file, version, offset / 8) >> (8 * (offset % 8)));
}

// May a reader find `value` at `offset`? A zero is also what the operating system itself may
// deliver for bytes that are being cut off while it copies them.
inline PENSTOCK_HD bool byte_allowed(const world& w, std::uint32_t file, const version_range& range,
                                     std::uint64_t offset, std::uint8_t value) {
    bool shrinks = false;
    for (std::uint64_t v = range.floor; v <= range.newest; ++v) {
        const std::uint64_t size = exists(w, file, v) ? size_of(w, file, v) : 0;
        if (offset < size && byte_of(w, file, v, offset) == value) return true;
        if (offset >= size) shrinks = true;
    }
    return shrinks && !range.exact() && value == 0;
}

// Counts the bytes of data[0, bytes), read from `offset` on, that no allowed version holds. Each of
// `of` threads of a group looks at its share of the 8-byte words; the caller adds up. `first_bad`
// is the lowest one this thread found.
inline PENSTOCK_HD std::uint64_t wrong_bytes(const world& w, std::uint32_t file,
                                             const version_range& range, std::uint64_t offset,
                                             const std::uint8_t* data, std::uint64_t bytes,
                                             std::uint32_t rank, std::uint32_t of,
                                             std::uint64_t& first_bad) {
    std::uint64_t wrong = 0;
    const std::uint64_t end = offset + bytes;
    // Before the loop, for a compiler that does not move them there itself.
    const std::uint64_t key = version_key(w, file, range.newest);
    const std::uint64_t size = exists(w, file, range.newest) ? size_of(w, file, range.newest) : 0;
    for (std::uint64_t word = offset / 8 + rank; word * 8 < end; word += of) {
        const std::uint64_t begin = word * 8 < offset ? offset : word * 8;
        const std::uint64_t until = word * 8 + 8 > end ? end : word * 8 + 8;
        // Nearly always all eight bytes are those of the newest version; look further only if not.
        const std::uint64_t newest = word_by_key(w, file, key, word);
        bool good = until <= size;
        for (std::uint64_t at = begin; good && at < until; ++at)
            good = data[at - offset] == static_cast<std::uint8_t>(newest >> (8 * (at % 8)));
        if (good) continue;
        for (std::uint64_t at = begin; at < until; ++at) {
            if (byte_allowed(w, file, range, at, data[at - offset])) continue;
            if (wrong++ == 0 && at < first_bad) first_bad = at;
        }
    }
    return wrong;
}

// May an open file have this size? In-place growth shows sizes between the old and the new one.
inline PENSTOCK_HD bool size_allowed(const world& w, std::uint32_t file, const version_range& range,
                                     std::uint64_t size) {
    if (range.exact()) return exists(w, file, range.floor) && size == size_of(w, file, range.floor);
    std::uint64_t least = ~std::uint64_t{0}, most = 0;
    for (std::uint64_t v = range.floor; v <= range.newest; ++v) {
        const std::uint64_t s = exists(w, file, v) ? size_of(w, file, v) : 0;
        least = s < least ? s : least;
        most = s > most ? s : most;
    }
    return size >= least && size <= most;
}

// One more user of a file. Returns the floor of its versions.
inline PENSTOCK_HD std::uint64_t enter_period(file_state& state) {
    for (;;) {
        const std::uint64_t done = atomic_load<order::acquire, scope::system>(&state.done);
        const std::uint64_t seen = atomic_load<order::acquire>(&state.period);
        const bool first = static_cast<std::uint32_t>(seen) == 0;
        const std::uint64_t next = first ? (done << 32 | 1) : seen + 1;
        if (atomic_compare_swap<order::acq_rel>(&state.period, seen, next)) return next >> 32;
    }
}
inline PENSTOCK_HD void leave_period(file_state& state) {
    atomic_fetch_add<order::acq_rel>(&state.period, ~std::uint64_t{0});
}

// To be asked after the call whose result is judged: until it returned the host may have begun
// another version.
inline PENSTOCK_HD version_range allowed_now(const file_state& state, std::uint64_t floor) {
    return {floor, atomic_load<order::acquire, scope::system>(&state.begun)};
}

enum class verb : std::uint32_t {
    open,
    close,
    read,
    read_on,
    element,
    each,
    map,
    unmap,
    prefetch,
    stat,
    gather,
    read_row,
    nonsense
};
inline constexpr std::uint32_t verb_count = 13;

// What an actor does at one step: a verb and random numbers for its arguments.
struct operation {
    verb kind;
    std::uint64_t which, where, length, extra;
};

constexpr PENSTOCK_HD operation operation_at(std::uint64_t seed, std::uint64_t actor,
                                             std::uint64_t step) {
    const std::uint64_t h = mix(seed ^ 0x0b5, actor, step);
    const std::uint32_t p = static_cast<std::uint32_t>(h % 100);
    const verb kind = p < 12   ? verb::open
                      : p < 22 ? verb::close
                      : p < 43 ? verb::read
                      : p < 50 ? verb::read_on
                      : p < 58 ? verb::element
                      : p < 64 ? verb::each
                      : p < 72 ? verb::map
                      : p < 80 ? verb::unmap
                      : p < 84 ? verb::prefetch
                      : p < 88 ? verb::stat
                      : p < 95 ? verb::gather
                      : p < 97 ? verb::read_row
                               : verb::nonsense;
    return {kind, mix64(h ^ 1), mix64(h ^ 2), mix64(h ^ 3), mix64(h ^ 4)};
}

// Two thirds of the opens go to a third of the files, so that actors meet.
constexpr PENSTOCK_HD std::uint32_t file_for(const world& w, std::uint64_t where, std::uint64_t r) {
    const std::uint32_t among = r % 3 != 0 ? (w.files() + 2) / 3 : w.files();
    return static_cast<std::uint32_t>((where % among) * 7 % w.files());
}

// Where to read: anywhere up to a page past the end, often beside a page border; in a big file,
// around its regions.
constexpr PENSTOCK_HD std::uint64_t offset_for(const world& w, std::uint32_t file,
                                               std::uint64_t size, std::uint64_t r) {
    if (w.is_big(file)) {
        const std::uint64_t start =
            region_start(w, file, static_cast<std::uint32_t>(r % big_regions)) * w.page_bytes;
        return start - w.page_bytes + (r >> 8) % ((region_pages + 2) * w.page_bytes);
    }
    const std::uint64_t any = (r >> 8) % (size + w.page_bytes);
    if (r % 4 != 0) return any;
    const std::uint64_t border = any / w.page_bytes * w.page_bytes + (r >> 3) % 5;
    return border < 2 ? 0 : border - 2;
}

constexpr PENSTOCK_HD std::uint64_t length_for(const world& w, std::uint64_t most,
                                               std::uint64_t r) {
    const std::uint64_t n = r >> 8;
    const std::uint64_t page = w.usual_bytes == 0 || r >> 58 == 0 ? w.page_bytes : w.usual_bytes;
    const std::uint64_t length = r % 16 == 0   ? 0
                                 : r % 16 < 5  ? 1 + n % 64
                                 : r % 16 < 12 ? 1 + n % page
                                 : r % 16 < 14 ? page
                                               : 1 + n % (10 * page);
    return length < most ? length : most;
}

// Writes the name of a file as a string; `out` has room for 16 characters.
inline PENSTOCK_HD void name_of_file(std::uint32_t file, std::uint32_t variant, char* out) {
    if (variant == 1) {
        *out++ = '.';
        *out++ = '/';
    }
    *out++ = variant == 2 ? 'l' : 'f';
    char digits[10];
    std::uint32_t count = 0;
    do {
        digits[count++] = static_cast<char>('0' + file % 10);
        file /= 10;
    } while (file != 0);
    while (count > 0) *out++ = digits[--count];
    *out = '\0';
}

}  // namespace penstock::model
