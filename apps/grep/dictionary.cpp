#include "dictionary.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

namespace penstock::grep {

namespace {

struct pending_key {
    std::uint32_t word = no_word;
    std::vector<std::uint8_t> lengths;
};

text_hash hash_of(const std::string& text) {
    return hash_text(reinterpret_cast<const unsigned char*>(text.data()),
                     static_cast<std::uint32_t>(text.size()), text.size());
}

std::size_t run_length(const std::string& word) {
    std::size_t n = 0;
    while (n < word.size() && is_constituent(static_cast<unsigned char>(word[n]))) ++n;
    return n;
}

std::uint32_t add_text(dictionary_tables& d, const std::string& text) {
    const auto at = static_cast<std::uint32_t>(d.text.size());
    d.text.insert(d.text.end(), text.begin(), text.end());
    return at;
}

// At most half full, so that a search ends soon.
void fill_slots(dictionary_tables::table& t, const std::vector<std::uint64_t>& hashes) {
    t.slots.assign(std::bit_ceil(std::max<std::size_t>(2 * hashes.size(), 8)), 0);
    const std::uint64_t mask = t.slots.size() - 1;
    for (std::uint32_t i = 0; i < hashes.size(); ++i) {
        std::uint64_t at = hashes[i] & mask;
        while (t.slots[at] != 0) at = (at + 1) & mask;
        t.slots[at] = (hashes[i] & ~std::uint64_t{0xffffffff}) | (i + 1);
    }
}

void add_entry(dictionary_tables& d, dictionary_tables::table& t,
               std::vector<std::uint64_t>& hashes, const std::string& text, std::uint32_t word,
               const std::vector<std::uint8_t>& lengths) {
    const text_hash hash = hash_of(text);
    key_entry entry{};
    entry.head = hash.head;
    entry.text_at = add_text(d, text);
    entry.word = word;
    entry.lengths_at = static_cast<std::uint32_t>(d.lengths.size());
    entry.bytes = static_cast<std::uint16_t>(text.size());
    entry.length_count = static_cast<std::uint16_t>(lengths.size());
    d.lengths.insert(d.lengths.end(), lengths.begin(), lengths.end());
    t.entries.push_back(entry);
    hashes.push_back(hash.value);
}

}  // namespace

dictionary_ref dictionary_tables::ref() const {
    dictionary_ref out = settings;
    out.keys = keys.ref();
    out.longer = longer.ref();
    out.text = text.data();
    out.lengths = lengths.data();
    return out;
}

dictionary_tables build_tables(const std::vector<std::string>& words,
                               const std::vector<std::uint32_t>& numbers) {
    dictionary_tables d;
    std::map<std::string, pending_key> keys;  // in order, so that equal input gives equal tables
    std::vector<std::uint64_t> longer_hashes;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        const std::size_t run = run_length(word);
        const auto first = static_cast<unsigned char>(word[0]);
        if (run == 0) d.settings.lead_bits[first >> 6] |= std::uint64_t{1} << (first & 63);
        pending_key& key = keys[word.substr(0, std::max<std::size_t>(run, 1))];
        if (run == word.size()) {
            key.word = numbers[i];
        } else {
            key.lengths.push_back(static_cast<std::uint8_t>(word.size()));
            add_entry(d, d.longer, longer_hashes, word, numbers[i], {});
        }
    }
    std::vector<std::uint64_t> key_hashes;
    for (auto& [text, key] : keys) {
        std::sort(key.lengths.begin(), key.lengths.end());
        key.lengths.erase(std::unique(key.lengths.begin(), key.lengths.end()), key.lengths.end());
        add_entry(d, d.keys, key_hashes, text, key.word, key.lengths);
        if (is_constituent(static_cast<unsigned char>(text[0])))
            d.settings.max_run_bytes =
                std::max(d.settings.max_run_bytes, static_cast<std::uint32_t>(text.size()));
    }
    fill_slots(d.keys, key_hashes);
    fill_slots(d.longer, longer_hashes);
    d.settings.word_count = static_cast<std::uint32_t>(words.size());
    return d;
}

// A second match may begin `shift` bytes into a first one if the rest of the word equals its
// beginning, the byte before it (inside the first) is no constituent, and the byte behind the first
// (inside the second) is none either.
bool can_overlap_itself(const std::string& word) {
    for (std::size_t shift = 1; shift < word.size(); ++shift) {
        const std::size_t shared = word.size() - shift;
        if (word.compare(shift, shared, word, 0, shared) == 0 &&
            !is_constituent(static_cast<unsigned char>(word[shift - 1])) &&
            !is_constituent(static_cast<unsigned char>(word[shared])))
            return true;
    }
    return false;
}

}  // namespace penstock::grep
