// Records in any order against a map, with one thread and with several.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "apps/grep/records.hpp"

namespace {

using namespace penstock::grep;

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
