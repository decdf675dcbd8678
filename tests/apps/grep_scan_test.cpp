// The code of penstock-grep without files: byte classes against the obvious loop, the way in which
// a wide group shares a text against one thread that reads all of it, and records in any order
// against a map, with one thread and with several.
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "apps/grep/count_job.hpp"
#include "apps/grep/inputs.hpp"
#include "apps/grep/records.hpp"

namespace {

using namespace penstock::grep;

bool plainly_constituent(unsigned char c) { return c < 128 && (std::isalnum(c) != 0 || c == '_'); }

TEST(grep_scan, byte_classes_agree_with_the_obvious_loop) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 20000; ++round) {
        unsigned char bytes[64];
        for (unsigned char& c : bytes)
            c = static_cast<unsigned char>(random() % 8 == 0 ? 0 : random());
        const auto count = static_cast<std::uint32_t>(random() % 64 + 1);
        const byte_kinds kinds = look_at(bytes, count, count);
        for (std::uint32_t i = 0; i < 64; ++i) {
            const bool inside = i < count;
            ASSERT_EQ((kinds.constituent >> i) & 1,
                      inside && plainly_constituent(bytes[i]) ? 1u : 0u)
                << i << " of " << count;
            ASSERT_EQ((kinds.zero >> i) & 1, inside && bytes[i] == 0 ? 1u : 0u)
                << i << " of " << count;
        }
    }
    for (int c = 0; c < 256; ++c)
        EXPECT_EQ(is_constituent(static_cast<unsigned char>(c)),
                  plainly_constituent(static_cast<unsigned char>(c)));
}

TEST(grep_scan, overlap_is_found_where_two_matches_can_share_bytes) {
    for (const char* const word : {"a.a", "::", "...", "a-b-a-b", "--a--", "a..a"})
        EXPECT_TRUE(can_overlap_itself(word)) << word;
    for (const char* const word :
         {"a", "-", "aa", "aba", "tit-for-tat", "-a-", "-a", "a-", "x::y", "->"})
        EXPECT_FALSE(can_overlap_itself(word)) << word;
}

// Thread `me` of a group of `Size`, run one after the other: scanning has no collective, so the
// order is of no matter.
template <std::uint32_t Size>
struct one_of_many {
    std::uint32_t me;
    [[nodiscard]] std::uint32_t size() const { return Size; }
    [[nodiscard]] std::uint32_t rank() const { return me; }
};

struct scratch {
    std::vector<std::byte> memory;
    search_view view{};

    explicit scratch(std::size_t words) {
        view.layout = lay_out_scratch(words, 0, 0);
        memory.resize(view.layout.bytes + 64);
        view.scratch = reinterpret_cast<std::byte*>(
            (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) & ~std::uintptr_t{63});
    }
    [[nodiscard]] std::vector<std::uint64_t> counts(std::size_t words) const {
        const tally t(view, 0);
        return {t.counters, t.counters + words};
    }
};

template <std::uint32_t Size>
std::vector<std::uint64_t> count_with(const dictionary_ref& d, const text_window& w,
                                      std::uint64_t from, std::uint64_t to,
                                      std::uint64_t& first_zero) {
    const scratch memory(d.word_count);
    const tally t(memory.view, 0);
    first_zero = no_zero_byte;
    for (std::uint32_t i = 0; i < Size; ++i) {
        const one_of_many<Size> g{i};
        plain_sink<one_of_many<Size>> sink{g, t};
        scan_stretches(g, d, w, from, to, sink);
        first_zero = std::min(first_zero, sink.first_zero);
    }
    return memory.counts(d.word_count);
}

// The definition, word by word and place by place; for words that cannot overlap themselves.
std::vector<std::uint64_t> count_plainly(const std::vector<std::string>& words,
                                         const std::string& text, std::size_t from,
                                         std::size_t to) {
    std::vector<std::uint64_t> counts(words.size(), 0);
    const auto constituent = [&text](std::size_t i) {
        return i < text.size() && plainly_constituent(static_cast<unsigned char>(text[i]));
    };
    for (std::size_t i = 0; i < words.size(); ++i)
        for (std::size_t at = from; at < to; ++at)
            if (text.compare(at, words[i].size(), words[i]) == 0 &&
                !(at > 0 && constituent(at - 1)) && !constituent(at + words[i].size()))
                ++counts[i];
    return counts;
}

std::string random_text(std::mt19937_64& random, const std::string& alphabet, std::size_t size) {
    std::string text;
    while (text.size() < size) text += alphabet[random() % alphabet.size()];
    return text;
}

TEST(grep_scan, a_wide_group_counts_what_one_thread_counts) {
    std::mt19937_64 random(2);
    std::uint64_t matches = 0;
    for (int round = 0; round < 300; ++round) {
        const std::string alphabet = round % 3 == 0   ? "ab_.-\n"
                                     : round % 3 == 1 ? std::string("aB9 \0-", 6)
                                                      : "abcdefgh   ,";
        std::string text = random_text(random, alphabet, random() % 6000);
        if (round % 5 == 0) text.insert(text.size() / 2, std::string(300 + random() % 300, 'a'));
        std::map<std::string, bool> chosen;
        for (int i = 0; i < 20; ++i) {
            const std::size_t at = text.empty() ? 0 : random() % text.size();
            const std::string word = text.substr(at, 1 + random() % (i < 15 ? 5 : 12));
            if (!word.empty() && word.find('\n') == std::string::npos && !can_overlap_itself(word))
                chosen[word] = true;
        }
        std::vector<std::string> words;
        std::vector<std::uint32_t> numbers;
        for (const auto& [word, unused] : chosen) {
            numbers.push_back(static_cast<std::uint32_t>(words.size()));
            words.push_back(word);
        }
        dictionary_tables tables;
        ASSERT_TRUE(build_tables(words, numbers, tables).ok());
        const text_window window{reinterpret_cast<const unsigned char*>(text.data()), 0,
                                 text.size()};
        const std::uint64_t from = text.empty() ? 0 : random() % text.size(),
                            to = from + (text.size() - from) / (1 + random() % 2);
        std::uint64_t zero_1 = 0, zero_32 = 0, zero_8 = 0;
        const auto expected = count_plainly(words, text, from, to);
        ASSERT_EQ(count_with<1>(tables.ref(), window, from, to, zero_1), expected)
            << "round " << round;
        ASSERT_EQ(count_with<32>(tables.ref(), window, from, to, zero_32), expected)
            << "round " << round;
        ASSERT_EQ(count_with<8>(tables.ref(), window, from, to, zero_8), expected)
            << "round " << round;
        const std::size_t zero = text.find('\0', from);
        ASSERT_EQ(zero_1, zero < to ? zero : no_zero_byte);
        ASSERT_EQ(zero_32, zero_1);
        ASSERT_EQ(zero_8, zero_1);
        for (const std::uint64_t count : expected) matches += count;
    }
    EXPECT_GT(matches, 10000u);
}

// An entry says in 32 bits where its text begins, so what goes beyond would be looked for
// elsewhere.
TEST(grep_scan, tables_that_would_be_too_large_are_refused) {
    const std::vector<std::string> words{"alpha", "beta", "beta-x", "beta-yz"};
    const std::vector<std::uint32_t> numbers{0, 1, 2, 3};
    const std::uint64_t bytes = 5 + 4 + 6 + 7;  // the keys alpha and beta, and the longer words
    dictionary_tables tables;
    ASSERT_TRUE(build_tables(words, numbers, tables, bytes).ok());
    EXPECT_EQ(tables.text.size(), bytes);
    for (const std::uint64_t fewer : {bytes - 1, bytes - 9, std::uint64_t{6}, std::uint64_t{0}}) {
        dictionary_tables none;
        EXPECT_EQ(build_tables(words, numbers, none, fewer).code, -EFBIG) << fewer;
        EXPECT_TRUE(none.text.empty());
    }
}

// Jobs of a few hundred files in random order; some files are left out, and files have several jobs
// with words in common.
struct sample {
    std::vector<std::uint32_t> file_of_job;
    penstock::grep::big_vector<record> records;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> expected;

    sample(std::uint64_t seed, std::uint32_t jobs, std::uint32_t most_words) {
        std::mt19937_64 random(seed);
        for (std::uint32_t job = 0; job < jobs; ++job) {
            file_of_job.push_back(static_cast<std::uint32_t>(random() % 300));
            const std::uint64_t words = random() % most_words;
            for (std::uint64_t i = 0; i < words; ++i) {
                const auto word = static_cast<std::uint32_t>(random() % 1000);
                const std::uint64_t count = 1 + random() % 9;
                records.push_back({job, word, count});
                if (!left_out(file_of_job[job])) expected[{file_of_job[job], word}] += count;
            }
        }
    }
    static bool left_out(std::uint32_t file) { return file % 7 == 3; }
};

TEST(grep_join, does_as_a_map_does) {
    for (const unsigned threads : {1u, 4u}) {
        for (const std::uint32_t most_words : {1u, 3u, 1500u}) {
            const sample s(threads * 100 + most_words, 700, most_words);
            std::vector<record_run> runs;
            find_runs(s.records, runs, [&](const record& r) {
                const std::uint32_t file = s.file_of_job[r.job];
                return sample::left_out(file) ? no_file : file;
            });
            const penstock::grep::big_vector<word_count> joined = join_records(runs, threads);
            ASSERT_EQ(joined.size(), s.expected.size());
            std::size_t i = 0;
            for (const auto& [where, count] : s.expected) {
                EXPECT_EQ(joined[i], (word_count{where.first, where.second, count})) << i;
                ++i;
            }
        }
    }
}

TEST(grep_join, nothing_is_nothing) { EXPECT_TRUE(join_records({}, 4).empty()); }

}  // namespace
