// What is remembered of a block's bytes to find equal blocks by: 128 bits. Equal content hashes are
// a reason to compare the bytes and nothing more, so two blocks of one content hash cost time and
// never a wrong byte; an author of a file's content can make many such.
//
// `quick` is 32 strands side by side, each over every 32nd word of 16 bytes, so that a warp takes a
// strand a lane and a CPU has 32 chains of multiplications that wait for nothing but themselves; a
// step multiplies 64 by 64 bits and folds the product, as wyhash does (Wang Yi, 2019). Then the
// strands are mixed apart and added. `md5` is RFC 1321, padding and all; the paper's choice (Zhong
// and He, ICCS 2011) for blocks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "penstock/base/hash.hpp"
#include "penstock/base/macros.hpp"

namespace penstock::buffer {

enum class signature_kind : std::uint8_t { quick, md5 };

struct content_hash {
    std::uint64_t low = 0, high = 0;
    friend constexpr bool operator==(const content_hash&, const content_hash&) = default;
};

inline constexpr std::uint64_t hashed_bytes = 64;  // a block is so many bytes, or a multiple
inline constexpr unsigned strands = 32;

struct alignas(16) strand_word {
    std::uint64_t low, high;
};

namespace detail {

PENSTOCK_HD inline std::uint64_t folded_product(std::uint64_t x, std::uint64_t y) {
#if PENSTOCK_ON_DEVICE
    return (x * y) ^ __umul64hi(x, y);
#else
    __extension__ typedef unsigned __int128 wide;  // -Wpedantic would not have it
    const wide product = wide{x} * y;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}

// Odd, and of no other meaning: the golden ratio's fraction, and those of the square roots of 3, 5
// and 7.
inline constexpr std::uint64_t first_key = 0x9e3779b97f4a7c15ull,
                               second_key = 0xbb67ae8584caa73bull,
                               third_key = 0x3c6ef372fe94f82bull,
                               fourth_key = 0xa54ff53a5f1d36f1ull;

}  // namespace detail

// What strands `first`, first + strands / Mine, ... give together to the content hash of a block.
// The parts of all 32, added, go to finished().
template <unsigned Mine>
PENSTOCK_HD content_hash strands_of(const strand_word* block, std::uint64_t bytes, unsigned first) {
    constexpr unsigned step = strands / Mine;
    const std::uint64_t words = bytes / sizeof(strand_word);
    std::uint64_t a[Mine], b[Mine];
    for (unsigned i = 0; i < Mine; ++i) {
        a[i] = detail::first_key * (2 * (first + i * step) + 1);
        b[i] = detail::third_key * (2 * (first + i * step) + 1);
    }
#if PENSTOCK_ON_DEVICE
#pragma unroll 4
#endif
    for (std::uint64_t row = 0; row < words; row += strands)
        for (unsigned i = 0; i < Mine; ++i) {
            const std::uint64_t at = row + first + i * step;
            if (at >= words) continue;
            const strand_word w = block[at];
            a[i] = detail::folded_product(w.low ^ detail::second_key, w.high ^ a[i]) +
                   detail::first_key;
            b[i] = detail::folded_product(w.low ^ b[i], w.high ^ detail::fourth_key) +
                   detail::third_key;
        }
    content_hash out;
    for (unsigned i = 0; i < Mine; ++i) {
        out.low += mix64(a[i]);
        out.high += mix64(b[i]);
    }
    return out;
}

PENSTOCK_HD inline content_hash finished(const content_hash& sum, std::uint64_t bytes) {
    return {mix64(sum.low ^ bytes), mix64(sum.high + detail::second_key)};
}

// By one thread.
inline content_hash quick_hash(const std::byte* block, std::uint64_t bytes) {
    return finished(strands_of<strands>(reinterpret_cast<const strand_word*>(block), bytes, 0),
                    bytes);
}

namespace detail {

// The integer part of 2^32 |sin(i + 1)|: RFC 1321, 3.4.
inline constexpr std::array<std::uint32_t, 64> md5_sines = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

template <unsigned I>
PENSTOCK_HD PENSTOCK_INLINE void md5_step(std::uint32_t& a, std::uint32_t b, std::uint32_t c,
                                          std::uint32_t d, const std::uint32_t* words) {
    constexpr unsigned turns[4][4] = {
        {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    constexpr unsigned round = I / 16, word = round == 0   ? I
                                              : round == 1 ? (5 * I + 1) % 16
                                              : round == 2 ? (3 * I + 5) % 16
                                                           : 7 * I % 16;
    constexpr unsigned turn = turns[round][I % 4];
    constexpr std::uint32_t sine = md5_sines[I];
    const std::uint32_t mixed = round == 0   ? ((b & c) | (~b & d))
                                : round == 1 ? ((b & d) | (c & ~d))
                                : round == 2 ? (b ^ c ^ d)
                                             : (c ^ (b | ~d));
    const std::uint32_t sum = a + mixed + words[word] + sine;
    a = b + (sum << turn | sum >> (32 - turn));
}

template <unsigned... I>
PENSTOCK_HD PENSTOCK_INLINE void md5_steps(std::uint32_t* s, const std::uint32_t* words,
                                           std::integer_sequence<unsigned, I...>) {
    // The four numbers change places with each step.
    (md5_step<I>(s[(64 - I) % 4], s[(65 - I) % 4], s[(66 - I) % 4], s[(67 - I) % 4], words), ...);
}

}  // namespace detail

struct md5_state {
    std::uint32_t s[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};

    // The next 64 bytes.
    PENSTOCK_HD PENSTOCK_INLINE void take(const std::uint32_t* words) {
        std::uint32_t now[4] = {s[0], s[1], s[2], s[3]};
        detail::md5_steps(now, words, std::make_integer_sequence<unsigned, 64>{});
        for (unsigned i = 0; i < 4; ++i) s[i] += now[i];
    }
    // After `bytes` in all, a multiple of 64.
    PENSTOCK_HD PENSTOCK_INLINE content_hash end(std::uint64_t bytes) {
        std::uint32_t padding[16] = {0x80,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     0,
                                     static_cast<std::uint32_t>(bytes << 3),
                                     static_cast<std::uint32_t>(bytes >> 29)};
        take(padding);
        return {s[0] | std::uint64_t{s[1]} << 32, s[2] | std::uint64_t{s[3]} << 32};
    }
};

inline content_hash md5_hash(const std::byte* block, std::uint64_t bytes) {
    static_assert(std::endian::native == std::endian::little);
    md5_state state;
    std::uint32_t words[16];
    for (std::uint64_t at = 0; at < bytes; at += sizeof words) {
        std::memcpy(words, block + at, sizeof words);
        state.take(words);
    }
    return state.end(bytes);
}

// 16-byte aligned; `bytes` a multiple of hashed_bytes.
inline content_hash hash_of(signature_kind kind, const std::byte* block, std::uint64_t bytes) {
    return kind == signature_kind::md5 ? md5_hash(block, bytes) : quick_hash(block, bytes);
}

}  // namespace penstock::buffer
