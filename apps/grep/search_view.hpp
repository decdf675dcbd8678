// The dictionary and the jobs as groups see them: plain pointers into the device's memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text.hpp"

namespace penstock::grep {

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
