// Text, dictionary and jobs as groups see them: bytes, and plain pointers into the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "penstock/base/hash.hpp"
#include "penstock/base/macros.hpp"

namespace penstock::grep {

// Bytes, eight or sixty-four at a time, and the hash by which dictionary and text meet. The C
// locale decides: a word is made of [A-Za-z0-9_], and no byte from 0x80 up belongs to one.

inline constexpr std::uint32_t max_word_bytes = 255;  // longest dictionary word
inline constexpr std::uint32_t no_word = 0xffffffffu;

// One bit per byte value below 128, in two constants: no memory access on either processor.
constexpr PENSTOCK_HD PENSTOCK_INLINE bool is_constituent(unsigned char c) {
    constexpr std::uint64_t digits = 0x03ff000000000000ull;   // '0' to '9'
    constexpr std::uint64_t letters = 0x07fffffe87fffffeull;  // 'A' to 'Z', '_', 'a' to 'z'
    return c < 128 && (((c < 64 ? digits : letters) >> (c & 63)) & 1) != 0;
}

// Number of the lowest bit that is set; 64 for 0.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t lowest_bit(std::uint64_t bits) {
#if PENSTOCK_ON_DEVICE
    return bits == 0 ? 64 : static_cast<std::uint32_t>(__ffsll(static_cast<long long>(bits)) - 1);
#else
    return bits == 0 ? 64 : static_cast<std::uint32_t>(__builtin_ctzll(bits));
#endif
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t low_bits(std::uint32_t count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// The `count` (1 to 8) bytes at `at`, first byte lowest, zeros above. `room`: how many bytes may be
// read there. The GPU cannot load eight bytes from any address, so it takes the aligned words that
// hold at least one byte asked for.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t load_bytes(const unsigned char* at, std::uint32_t count,
                                                     [[maybe_unused]] std::uint64_t room) {
    std::uint64_t value = 0;
#if PENSTOCK_ON_DEVICE
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const auto* const word = reinterpret_cast<const std::uint64_t*>(address & ~std::uintptr_t{7});
    const auto skipped = static_cast<std::uint32_t>(address & 7);
    value = word[0] >> (8 * skipped);
    if (skipped + count > 8) value |= word[1] << (64 - 8 * skipped);
#else
    if (room >= 8) std::memcpy(&value, at, 8);
    else std::memcpy(&value, at, count);
#endif
    return value & low_bits(8 * count);
}

namespace detail {

inline constexpr std::uint64_t each_byte = 0x0101010101010101ull, top_bits = 0x80 * each_byte;

// In every byte below 0x80 of `bytes`: the top bit, if the byte is at least `least`.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t at_least(std::uint64_t bytes,
                                                             std::uint32_t least) {
    return bytes + (0x80 - least) * each_byte;
}

// One bit per byte from the top bits of eight bytes: the product gathers them in its highest byte.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather(std::uint64_t tops) {
    return ((tops >> 7) * 0x0102040810204080ull) >> 56;
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t constituents(std::uint64_t bytes) {
    const std::uint64_t low = bytes & ~top_bits, lower_case = low | 0x20 * each_byte;
    const std::uint64_t digits = at_least(low, '0') & ~at_least(low, '9' + 1);
    const std::uint64_t letters = at_least(lower_case, 'a') & ~at_least(lower_case, 'z' + 1);
    const std::uint64_t underscores = at_least(low, '_') & ~at_least(low, '_' + 1);
    return gather((digits | letters | underscores) & ~bytes & top_bits);
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t zeros(std::uint64_t bytes) {
    return gather(~(at_least(bytes & ~top_bits, 1) | bytes) & top_bits);
}

}  // namespace detail

// What sixty-four bytes are, one bit each.
struct byte_kinds {
    std::uint64_t constituent = 0;
    std::uint64_t zero = 0;
};

// The `count` (1 to 64) bytes at `at`; `room` as above.
PENSTOCK_HD PENSTOCK_INLINE byte_kinds look_at(const unsigned char* at, std::uint32_t count,
                                               std::uint64_t room) {
    byte_kinds kinds;
    for (std::uint32_t i = 0; i < count; i += 8) {
        const std::uint64_t bytes = load_bytes(at + i, count - i < 8 ? count - i : 8, room - i);
        kinds.constituent |= detail::constituents(bytes) << i;
        kinds.zero |= detail::zeros(bytes) << i;
    }
    kinds.zero &= low_bits(count);
    return kinds;
}

// Hash of a byte string, and its first eight bytes, so that a string of up to eight is compared in
// one step.
struct text_hash {
    std::uint64_t value;
    std::uint64_t head;
    std::uint32_t bytes;
};

PENSTOCK_HD PENSTOCK_INLINE text_hash hash_text(const unsigned char* at, std::uint32_t bytes,
                                                std::uint64_t room) {
    text_hash out{0x9e3779b97f4a7c15ull + (std::uint64_t{bytes} << 56), 0, bytes};
    for (std::uint32_t i = 0; i < bytes; i += 8) {
        const std::uint64_t chunk = load_bytes(at + i, bytes - i < 8 ? bytes - i : 8, room - i);
        if (i == 0) out.head = chunk;
        out.value = mix64(out.value ^ chunk);
    }
    return out;
}

// The dictionary as the scanning code sees it: flat arrays, in host or device memory, never written
// while a search runs.
//
// Two hash tables. `keys` holds what a match can begin with: a whole run of constituents ("cross",
// which is a word itself and also begins "cross-bun"), or one byte that is no constituent ("-" for
// "-x"). `longer` holds the words that are not one run of constituents, whole. A key knows the
// lengths of the longer words that begin with it, so a place in the text costs at most one look-up
// for each distinct length, however many words share the beginning.
struct key_entry {
    std::uint64_t head;  // first eight bytes of its text
    std::uint32_t text_at;
    std::uint32_t word;        // the word that is exactly this key, or no_word
    std::uint32_t lengths_at;  // ascending lengths of the longer words that begin with this key
    std::uint16_t bytes;
    std::uint16_t length_count;
};
static_assert(sizeof(key_entry) == 24);

struct hash_table_ref {
    const std::uint64_t* slots;  // high half of the hash, then entry number + 1; 0 is empty
    const key_entry* entries;
    std::uint64_t mask;
};

struct dictionary_ref {
    hash_table_ref keys;
    hash_table_ref longer;
    const unsigned char* text;
    const std::uint8_t* lengths;
    std::uint64_t lead_bits[4];   // which bytes begin a word without being constituents
    std::uint32_t max_run_bytes;  // longest key that is a run
    std::uint32_t word_count;

    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE bool leads(unsigned char c) const {
        return ((lead_bits[c >> 6] >> (c & 63)) & 1) != 0;
    }
};

// The entry whose text is the `hash.bytes` bytes at `at`, or null.
PENSTOCK_HD PENSTOCK_INLINE const key_entry* find_entry(const hash_table_ref& table,
                                                        const unsigned char* text,
                                                        const text_hash& hash,
                                                        const unsigned char* at) {
    const std::uint64_t value = hash.value;
    for (std::uint64_t i = value & table.mask;; i = (i + 1) & table.mask) {
        const std::uint64_t slot = table.slots[i];
        if (slot == 0) return nullptr;
        if ((slot ^ value) >> 32 != 0) continue;
        const key_entry& entry = table.entries[(slot & 0xffffffffu) - 1];
        if (entry.bytes != hash.bytes || entry.head != hash.head) continue;
        std::uint32_t same = 8;
        while (same < hash.bytes && text[entry.text_at + same] == at[same]) ++same;
        if (same >= hash.bytes) return &entry;
    }
}

// What groups share while they search, as plain pointers into the memory of the device that runs
// them.
//
// Written by the host before the launch: dictionaries, jobs, paths, sizes. Written by groups:
// `status` of a job by the group that took it, `records` below `records_used` by the group that
// reserved them, `first_zero` and `shared` by any, atomically. Everything else of a group lies in
// its own scratch. The host reads after the launch.

// Bytes [begin, end) of a file: the words that begin there are this job's, wherever they end.
struct job {
    std::uint32_t file;
    std::uint32_t reserved;
    std::uint64_t begin;
    std::uint64_t end;
};

struct record {
    std::uint32_t job;
    std::uint32_t word;
    std::uint64_t count;
};

// Not taken, or its records did not fit: run it again. 0 done, < 0 errno.
inline constexpr std::int32_t job_open = 1;
inline constexpr std::uint64_t no_zero_byte = ~std::uint64_t{0};
// A zero byte below this: grep prints nothing of the file.
inline constexpr std::uint64_t first_read_bytes = 98304;

// A word that can overlap itself ("a.a" in "a.a.a"). The dictionary of chained words knows it by
// its place in this list.
struct chained_word {
    std::uint32_t word;
    std::uint32_t bytes;
};

// Where a group stands in the chain of overlapping places of one word.
struct chain_state {
    std::uint64_t stamp;      // of the job that wrote it; another stamp means nothing is known
    std::uint64_t last_seen;  // where the word was seen last
    std::uint64_t free_from;  // where the next match may begin; 0: the chain began before this job,
                              // another counts it
};

// Words that groups change together, each on a line of its own.
struct shared_words {
    alignas(128) std::uint64_t next_job;
    alignas(128) std::uint64_t records_used;
    alignas(128)
        std::uint32_t stop;  // no more jobs are taken: the records are full, or the runtime failed
};

// A group's scratch: counters, chains, list of the counters in use, text.
struct scratch_layout {
    std::uint64_t chains_at;
    std::uint64_t touched_at;
    std::uint64_t touched_count_at;
    std::uint64_t text_at;
    std::uint64_t text_bytes;
    std::uint64_t bytes;  // of one group
};

constexpr scratch_layout lay_out_scratch(std::uint64_t words, std::uint64_t chained,
                                         std::uint64_t text_bytes) {
    const auto up = [](std::uint64_t n) { return (n + 127) & ~std::uint64_t{127}; };
    scratch_layout s{};
    s.chains_at = up(words * sizeof(std::uint64_t));
    s.touched_at = s.chains_at + up(chained * sizeof(chain_state));
    s.touched_count_at = s.touched_at + up(words * sizeof(std::uint32_t));
    s.text_at = s.touched_count_at + 128;
    s.text_bytes = text_bytes;
    s.bytes = s.text_at + up(text_bytes);
    return s;
}

struct search_view {
    dictionary_ref plain;
    dictionary_ref chained;
    const chained_word* chained_words;
    std::uint32_t chained_count;
    std::uint32_t longest_chained;
    const job* jobs;
    std::uint64_t job_count;
    std::uint64_t stamp_base;  // differs from launch to launch, so that no stamp repeats
    const char* paths;         // each ends with a zero byte
    const std::uint64_t* path_at;
    const std::uint64_t* file_bytes;
    std::uint64_t* first_zero;  // per file: the first zero byte seen so far
    std::int32_t* status;       // per job
    record* records;
    std::uint64_t record_capacity;
    shared_words* shared;
    std::byte* scratch;
    scratch_layout layout;
};

}  // namespace penstock::grep
