// Finding dictionary words in a piece of text: one body for a GPU thread and a CPU thread.
//
// Thread safety: reads only; every caller has its own sink.
#pragma once

#include <cstdint>

#include "search_view.hpp"

namespace penstock::grep {

// Bytes [begin, end) of a file. Around the positions to be scanned it must hold the byte before
// (unless the file begins there) and the max_word_bytes + 1 bytes behind (unless the file ends
// there).
struct text_window {
    const unsigned char* bytes;
    std::uint64_t begin;
    std::uint64_t end;

    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE std::uint64_t size() const { return end - begin; }
};
inline constexpr std::uint32_t window_margin = max_word_bytes + 1;

// Reports the words of `longer` that stand at `at`; `entry` is the key found there. Ends of words
// are looked at first, because that is one byte and most lengths fail it.
template <typename Sink>
PENSTOCK_HD inline void scan_longer(const dictionary_ref& d, const text_window& w, std::uint64_t at,
                                    const key_entry& entry, Sink& sink) {
    const std::uint64_t room = w.size() - at;
    for (std::uint32_t i = 0; i < entry.length_count; ++i) {
        const std::uint32_t length = d.lengths[entry.lengths_at + i];
        if (length > room) return;
        if (length < room && is_constituent(w.bytes[at + length])) continue;
        const text_hash hash = hash_text(w.bytes + at, length, room);
        if (const key_entry* const word = find_entry(d.longer, d.text, hash, w.bytes + at))
            sink.found(word->word, w.begin + at);
    }
}

// Looks up the key of `bytes` bytes at `at`, and what begins with it.
template <typename Sink>
PENSTOCK_HD PENSTOCK_INLINE void scan_key(const dictionary_ref& d, const text_window& w,
                                          std::uint64_t at, std::uint32_t bytes, Sink& sink) {
    const text_hash hash = hash_text(w.bytes + at, bytes, w.size() - at);
    const key_entry* const entry = find_entry(d.keys, d.text, hash, w.bytes + at);
    if (entry == nullptr) return;
    if (entry->word != no_word) sink.found(entry->word, w.begin + at);
    if (entry->length_count != 0) scan_longer(d, w, at, *entry, sink);
}

// Length of the run at `at`, of which `known` bytes were seen up to the end of a block; more than
// d.max_run_bytes if it is too long to be looked up.
PENSTOCK_HD inline std::uint32_t run_beyond(const dictionary_ref& d, const text_window& w,
                                            std::uint64_t at, std::uint32_t known) {
    std::uint32_t length = known;
    while (length <= d.max_run_bytes && at + length < w.size() &&
           is_constituent(w.bytes[at + length]))
        ++length;
    return length;
}

// Reports, in order, every word that begins at a position of [from, to) and has no constituent
// before or behind it: sink.found(word, position). Also the first zero byte of each block:
// sink.zero_byte(position). Matches that overlap are all reported.
//
// Works on blocks of 64 positions. Bits of `begins` are the places where a match can begin: where a
// run begins, and, if some word begins with another byte, where neither the byte nor the one before
// it is a constituent.
template <typename Sink>
PENSTOCK_HD inline void scan(const dictionary_ref& d, const text_window& w, std::uint64_t from,
                             std::uint64_t to, Sink& sink) {
    const bool any_leads = (d.lead_bits[0] | d.lead_bits[1] | d.lead_bits[2] | d.lead_bits[3]) != 0;
    const std::uint64_t first = from - w.begin, stop = to - w.begin;
    std::uint64_t carry = first > 0 && is_constituent(w.bytes[first - 1]) ? 1 : 0;
    for (std::uint64_t block = first; block < stop; block += 64) {
        const std::uint32_t count =
            stop - block < 64 ? static_cast<std::uint32_t>(stop - block) : 64;
        const byte_kinds kinds = look_at(w.bytes + block, count, w.size() - block);
        if (kinds.zero != 0) sink.zero_byte(w.begin + block + lowest_bit(kinds.zero));
        const std::uint64_t runs = kinds.constituent, follow_run = runs << 1 | carry;
        carry = runs >> 63;
        std::uint64_t begins = (any_leads ? low_bits(count) : runs) & ~follow_run;
        for (; begins != 0; begins &= begins - 1) {
            const std::uint32_t bit = lowest_bit(begins);
            const std::uint64_t at = block + bit;
            if (((runs >> bit) & 1) == 0) {
                if (d.leads(w.bytes[at])) scan_key(d, w, at, 1, sink);
                continue;
            }
            std::uint32_t length = lowest_bit(~(runs >> bit));
            if (bit + length >= count) length = run_beyond(d, w, at, count - bit);
            if (length <= d.max_run_bytes) scan_key(d, w, at, length, sink);
        }
    }
}

}  // namespace penstock::grep
