// Finding dictionary words in a piece of text: one body for a GPU thread and a CPU thread.
//
// Thread safety: reads only; every caller has its own sink.
#pragma once

#include <cstdint>

#include "dictionary_ref.hpp"

namespace penstock::grep {

// Bytes [begin, end) of a file. Around the positions to be scanned it must hold the byte before (unless the file begins
// there) and the max_word_bytes + 1 bytes behind (unless the file ends there).
struct text_window {
    const unsigned char* bytes;
    std::uint64_t begin;
    std::uint64_t end;
};
inline constexpr std::uint32_t window_margin = max_word_bytes + 1;

// Reports the words of `longer` that stand at `at`; `entry` is the key found there. Ends of words are looked at first,
// because that is one byte and most lengths fail it.
template <typename Sink>
PENSTOCK_HD inline void scan_longer(const dictionary_ref& d, const text_window& w, std::uint64_t at,
                                    const key_entry& entry, Sink& sink) {
    const std::uint64_t room = w.end - w.begin - at;
    text_hash hash;
    for (std::uint32_t i = 0; i < entry.length_count; ++i) {
        const std::uint32_t length = d.lengths[entry.lengths_at + i];
        if (length > room) return;
        if (length < room && is_constituent(w.bytes[at + length])) continue;
        while (hash.bytes < length) hash.add(w.bytes[at + hash.bytes]);
        if (const key_entry* const word = find_entry(d.longer, d.text, hash, w.bytes + at))
            sink.found(word->word, w.begin + at);
    }
}

// Looks up what begins at `at`, hashed by the caller.
template <typename Sink>
PENSTOCK_HD PENSTOCK_INLINE void scan_key(const dictionary_ref& d, const text_window& w, std::uint64_t at,
                                          const text_hash& hash, Sink& sink) {
    const key_entry* const entry = find_entry(d.keys, d.text, hash, w.bytes + at);
    if (entry == nullptr) return;
    if (entry->word != no_word) sink.found(entry->word, w.begin + at);
    if (entry->length_count != 0) scan_longer(d, w, at, *entry, sink);
}

// Reports, in order, every word that begins at a position of [from, to) and has no constituent before or behind it:
// sink.found(word, position). Also the zero bytes there: sink.zero_byte(position). Matches that overlap are all reported.
template <typename Sink>
PENSTOCK_HD inline void scan(const dictionary_ref& d, const text_window& w, std::uint64_t from, std::uint64_t to,
                             Sink& sink) {
    const unsigned char* const bytes = w.bytes;
    const std::uint64_t stop = to - w.begin, end = w.end - w.begin;
    std::uint64_t i = from - w.begin;
    bool behind_run = i > 0 && is_constituent(bytes[i - 1]);
    while (i < stop) {
        unsigned char c = bytes[i];
        if (behind_run) {
            // The rest of a run that is too long or began before us, or the byte behind a run: nothing begins here.
            behind_run = is_constituent(c);
            if (c == 0) sink.zero_byte(w.begin + i);
            ++i;
            continue;
        }
        if (!is_constituent(c)) {
            if (c == 0) sink.zero_byte(w.begin + i);
            if (d.leads(c)) {
                text_hash hash;
                hash.add(c);
                scan_key(d, w, i, hash, sink);
            }
            ++i;
            continue;
        }
        const std::uint64_t start = i;
        text_hash hash;
        do {
            hash.add(c);
            ++i;
        } while (i < end && hash.bytes <= d.max_run_bytes && is_constituent(c = bytes[i]));
        if (hash.bytes <= d.max_run_bytes) scan_key(d, w, start, hash, sink);
        behind_run = true;
    }
}

}  // namespace penstock::grep
