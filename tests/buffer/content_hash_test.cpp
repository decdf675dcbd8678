// Content hashes of blocks: MD5 is MD5; the quick one tells blocks apart that differ a little, and
// is the same by whatever number of threads.
#include "buffer/pool/content_hash.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "region/support.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include "buffer/pool/gpu_hashes.cuh"
#include "device/gpu_context.cuh"
#endif

namespace penstock::test {

namespace {

using buffer::content_hash;
using buffer::signature_kind;

// 16-byte aligned, as frames are.
struct block {
    explicit block(std::uint64_t bytes) : words(bytes / 16), bytes(bytes) {}
    std::byte* data() { return reinterpret_cast<std::byte*>(words.data()); }
    content_hash quick() { return buffer::quick_hash(data(), bytes); }
    struct alignas(16) word {
        std::uint64_t low = 0, high = 0;
    };
    std::vector<word> words;
    std::uint64_t bytes;
};

std::string text_of(const content_hash& s) {
    std::string out;
    for (const std::uint64_t half : {s.low, s.high})
        for (unsigned i = 0; i < 8; ++i) {
            char digits[3];
            std::snprintf(digits, sizeof digits, "%02x",
                          static_cast<unsigned>(half >> 8 * i & 0xff));
            out += digits;
        }
    return out;
}

bool all_differ(std::vector<content_hash> all) {
    const auto before = [](const content_hash& a, const content_hash& b) {
        return a.low != b.low ? a.low < b.low : a.high < b.high;
    };
    std::sort(all.begin(), all.end(), before);
    return std::adjacent_find(all.begin(), all.end()) == all.end();
}

}  // namespace

// As md5sum and Python's hashlib have it.
TEST(content_hashes, md5_is_md5) {
    EXPECT_EQ(text_of(buffer::md5_hash(block(64).data(), 64)), "3b5d3c7d207e37dceeedd301e35e2e58");
    EXPECT_EQ(text_of(buffer::md5_hash(block(4096).data(), 4096)),
              "620f0b67a91f7f74151bc5be745b7110");
    block some(4096);
    for (std::uint64_t i = 0; i < some.bytes; ++i)
        some.data()[i] = static_cast<std::byte>((i * i + 7 * i) % 251);
    EXPECT_EQ(text_of(buffer::md5_hash(some.data(), 4096)), "7ff4b5ba77554e7a896469d98a9d3397");
    EXPECT_EQ(text_of(buffer::md5_hash(some.data(), 192)), "52ec35099b7496199947c183f6b9d625");
}

TEST(content_hashes, a_changed_bit_changes_half_of_the_quick_one) {
    for (const bool random_bytes : {false, true}) {
        block sample(4096);
        std::mt19937_64 random(5);
        if (random_bytes)
            for (auto& w : sample.words) w = {random(), random()};
        const content_hash before = sample.quick();
        std::vector<content_hash> all{before};
        std::uint64_t turned = 0;
        for (std::uint64_t bit = 0; bit < 8 * sample.bytes; ++bit) {
            sample.data()[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
            const content_hash now = sample.quick();
            turned += static_cast<std::uint64_t>(std::popcount(now.low ^ before.low) +
                                                 std::popcount(now.high ^ before.high));
            all.push_back(now);
            sample.data()[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
        }
        EXPECT_NEAR(static_cast<double>(turned) / static_cast<double>(8 * sample.bytes), 64, 0.5);
        EXPECT_TRUE(all_differ(all));
    }
}

// Pages of programs: one small number anywhere, the same bytes at another place, two words that
// change places, blocks of zeros of each length.
TEST(content_hashes, quick_ones_of_similar_blocks_differ) {
    std::vector<content_hash> all;
    block sample(4096);
    all.push_back(sample.quick());
    for (std::uint64_t place = 0; place < sample.words.size(); ++place)
        for (std::uint64_t number = 1; number <= 500; ++number) {
            sample.words[place].low = number;
            all.push_back(sample.quick());
            sample.words[place] = {0, number};
            all.push_back(sample.quick());
            sample.words[place] = {};
        }
    EXPECT_TRUE(all_differ(all));
    all.clear();
    for (std::uint64_t bytes = 64; bytes <= 65536; bytes += 64) all.push_back(block(bytes).quick());
    for (std::uint64_t i = 0; i < sample.words.size(); ++i) sample.words[i] = {i, ~i};
    for (std::uint64_t i = 0; i < sample.words.size(); ++i)
        for (std::uint64_t j = 0; j < i; ++j) {
            std::swap(sample.words[i], sample.words[j]);
            all.push_back(sample.quick());
            std::swap(sample.words[i], sample.words[j]);
        }
    EXPECT_TRUE(all_differ(all));
}

TEST(content_hashes, threads_that_take_a_strand_each_find_the_same) {
    std::mt19937_64 random(9);
    for (const std::uint64_t bytes : {64u, 128u, 512u, 576u, 4096u, 2u << 20}) {
        block sample(bytes);
        for (auto& w : sample.words) w = {random(), random()};
        const auto* const words = reinterpret_cast<const buffer::strand_word*>(sample.data());
        content_hash by_lanes, by_pairs;
        for (unsigned i = 0; i < buffer::strands; ++i) {
            const content_hash part = buffer::strands_of<1>(words, bytes, i);
            by_lanes.low += part.low, by_lanes.high += part.high;
        }
        for (unsigned i = 0; i < 16; ++i) {
            const content_hash part = buffer::strands_of<2>(words, bytes, i);
            by_pairs.low += part.low, by_pairs.high += part.high;
        }
        EXPECT_EQ(buffer::finished(by_lanes, bytes), sample.quick()) << bytes;
        EXPECT_EQ(buffer::finished(by_pairs, bytes), sample.quick()) << bytes;
    }
}

#if defined(PENSTOCK_WITH_CUDA)
TEST(content_hashes, a_gpu_finds_the_same) {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    ASSERT_EQ(buffer::load_hash_kernels(), cudaSuccess);
    std::mt19937_64 random(3);
    for (const std::uint64_t bytes : {64u, 128u, 1024u, 4096u, 65536u})
        for (const std::uint64_t count : {1u, 31u, 32u, 33u, 1000u}) {
            host::gpu_memory memory(0);
            auto* const blocks = static_cast<std::byte*>(memory.shared_bytes(count * bytes));
            auto* const found =
                static_cast<content_hash*>(memory.shared_bytes(count * sizeof(content_hash)));
            ASSERT_TRUE(blocks != nullptr && found != nullptr);
            for (std::uint64_t i = 0; i < count * bytes; i += 8) {
                const std::uint64_t word = random();
                std::memcpy(blocks + i, &word, 8);
            }
            for (const signature_kind kind : {signature_kind::quick, signature_kind::md5}) {
                ASSERT_EQ(buffer::hash_blocks(kind, blocks, count, bytes, found, nullptr),
                          cudaSuccess);
                ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
                for (std::uint64_t i = 0; i < count; ++i)
                    ASSERT_EQ(found[i], buffer::hash_of(kind, blocks + i * bytes, bytes))
                        << bytes << ' ' << count << ' ' << i;
            }
        }
}
#endif

}  // namespace penstock::test
