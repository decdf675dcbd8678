// The dictionary as the scanning code sees it: flat arrays, in host or device memory, never written
// while a search runs.
//
// Two hash tables. `keys` holds what a match can begin with: a whole run of constituents ("cross",
// which is a word itself and also begins "cross-bun"), or one byte that is no constituent ("-" for
// "-x"). `longer` holds the words that are not one run of constituents, whole. A key knows the
// lengths of the longer words that begin with it, so a place in the text costs at most one look-up
// for each distinct length, however many words share the beginning.
#pragma once

#include <cstdint>

#include "text.hpp"

namespace penstock::grep {

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

}  // namespace penstock::grep
