// Mixing functions: spread group numbers over shards and names over the name table. Not
// cryptographic; every match is confirmed by comparing the whole name, so a collision costs time
// and never correctness.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

namespace penstock {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every input bit
// reaches every output bit.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t mix64(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    x ^= x >> 31;
    return x;
}

// The characters of a name from `at` on, as many as a word has, the first one lowest; zeros behind
// its end. Eight steps, however many are left: a loop that ended with the name was unrolled by
// four, and where two characters remained ptxas 13.0 lost them in some kernels and not in others;
// opens of names of such lengths failed (tests/device/open_test.cu, names_of_every_length).
PENSTOCK_HD PENSTOCK_NOINLINE inline std::uint64_t name_chunk(const char* name, std::uint32_t bytes,
                                                              std::uint32_t at) {
    std::uint64_t chunk = 0;
    for (std::uint32_t i = 0; i < 8; ++i)
        if (at + i < bytes)
            chunk |= std::uint64_t{static_cast<unsigned char>(name[at + i])} << (8 * i);
    return chunk;
}

// Hash of `bytes` characters, never 0 (0 marks a name slot that was never used).
PENSTOCK_HD inline std::uint64_t hash_name(const char* name, std::uint32_t bytes) {
    std::uint64_t hash = mix64(bytes + 0x9e3779b97f4a7c15ull);
    for (std::uint32_t at = 0; at < bytes; at += 8)
        hash = mix64(hash ^ name_chunk(name, bytes, at)) + 0x9e3779b97f4a7c15ull;
    return hash == 0 ? 1 : hash;
}

}  // namespace penstock
