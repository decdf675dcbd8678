// Merging by twins: every changed byte arrives and no other, in the order of the merges.
#include <gtest/gtest.h>

#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/merge.hpp"

namespace penstock::test {
namespace {

struct alignas(16) page_of_bytes {
    std::uint8_t bytes[4096];
};

std::uint8_t random_byte(std::uint64_t seed, std::uint64_t i) {
    return static_cast<std::uint8_t>(mix64(seed * 4096 + i) >> 13);
}

TEST(merge, bytes_by_bytes_as_a_loop_would) {
    std::vector<page_of_bytes> pages(4);
    for (std::uint64_t seed = 1; seed <= 300; ++seed) {
        page_of_bytes &pristine = pages[0], &first = pages[1], &second = pages[2], &into = pages[3];
        std::vector<std::uint8_t> wanted(4096);
        for (std::uint64_t i = 0; i < 4096; ++i) {
            const std::uint64_t h = mix64(seed ^ i * 77);
            pristine.bytes[i] = first.bytes[i] = second.bytes[i] = into.bytes[i] = wanted[i] =
                random_byte(seed, i);
            // By seed one in two to one in many; sometimes to what it was; sometimes by both.
            if (h % (1 + seed % 40) == 0) first.bytes[i] = random_byte(seed + 1, i);
            if ((h >> 8) % (1 + seed % 23) == 0) second.bytes[i] = random_byte(seed + 2, i);
            if (first.bytes[i] != pristine.bytes[i]) wanted[i] = first.bytes[i];
            if (second.bytes[i] != pristine.bytes[i]) wanted[i] = second.bytes[i];
        }
        merge(lane{}, &into, &first, &pristine, 4096);
        merge(lane{}, &into, &second, &pristine, 4096);
        for (std::uint64_t i = 0; i < 4096; ++i)
            ASSERT_EQ(into.bytes[i], wanted[i]) << "seed " << seed << ", byte " << i;
    }
}

TEST(merge, which_bytes_differ) {
    for (std::uint32_t k = 0; k < 64; ++k)
        for (const std::uint8_t change : {1, 0x80, 0x7f, 0xff}) {
            alignas(16) std::uint8_t now[64], before[64];
            for (std::uint32_t i = 0; i < 64; ++i)
                now[i] = before[i] = static_cast<std::uint8_t>(i * 37);
            now[k] = static_cast<std::uint8_t>(now[k] ^ change);
            EXPECT_EQ(changed_bytes(reinterpret_cast<std::byte*>(now),
                                    reinterpret_cast<std::byte*>(before), 64),
                      std::uint64_t{1} << k);
            std::uint64_t nonzero = 0;
            for (std::uint32_t i = 0; i < 64; ++i) nonzero |= std::uint64_t{now[i] != 0} << i;
            EXPECT_EQ(changed_bytes(reinterpret_cast<std::byte*>(now), nullptr, 64), nonzero);
        }
}

}  // namespace
}  // namespace penstock::test
