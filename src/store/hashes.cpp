#include "store/hashes.hpp"

#include <bit>
#include <cstring>

namespace penstock::host {

namespace {

constexpr std::array<std::uint32_t, 64> round_words = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t load_big(const std::uint8_t* from) {
    return std::uint32_t{from[0]} << 24 | std::uint32_t{from[1]} << 16 |
           std::uint32_t{from[2]} << 8 | from[3];
}

void add_chunk(std::array<std::uint32_t, 8>& state, const std::uint8_t* chunk) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) w[i] = load_big(chunk + 4 * i);
    for (std::size_t i = 16; i < 64; ++i) {
        const std::uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    std::array<std::uint32_t, 8> s = state;
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t t1 = s[7] +
                                 (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) +
                                 ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_words[i] + w[i];
        const std::uint32_t t2 = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) +
                                 ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
}

constexpr std::uint64_t prime1 = 11400714785074694791u, prime2 = 14029467366897019727u,
                        prime3 = 1609587929392839161u, prime4 = 9650029242287828579u,
                        prime5 = 2870177450012600261u;

template <typename T>
T load(const std::byte* from) {
    T out;
    std::memcpy(&out, from, sizeof out);
    return out;
}

std::uint64_t mixed(std::uint64_t sum, std::uint64_t word) {
    return std::rotl(sum + word * prime2, 31) * prime1;
}

std::uint64_t joined(std::uint64_t hash, std::uint64_t sum) {
    return (hash ^ mixed(0, sum)) * prime1 + prime4;
}

}  // namespace

sha256_digest sha256(std::span<const std::byte> bytes) {
    std::array<std::uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    const std::size_t whole = bytes.size() / 64 * 64, rest = bytes.size() - whole;
    for (std::size_t at = 0; at < whole; at += 64) add_chunk(state, data + at);
    std::array<std::uint8_t, 128> tail{};
    if (rest != 0) std::memcpy(tail.data(), data + whole, rest);
    tail[rest] = 0x80;
    const std::size_t end = rest < 56 ? 64 : 128;
    const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
    for (std::size_t i = 0; i < 8; ++i)
        tail[end - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
    for (std::size_t at = 0; at < end; at += 64) add_chunk(state, tail.data() + at);
    sha256_digest out;
    for (std::size_t i = 0; i < 32; ++i)
        out[i] = static_cast<std::uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
    return out;
}

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed) {
    const std::byte* at = bytes.data();
    const std::byte* const end = at + bytes.size();
    std::uint64_t hash = seed + prime5;
    if (bytes.size() >= 32) {
        std::array<std::uint64_t, 4> sums = {seed + prime1 + prime2, seed + prime2, seed,
                                             seed - prime1};
        for (; end - at >= 32; at += 32)
            for (std::size_t i = 0; i < 4; ++i)
                sums[i] = mixed(sums[i], load<std::uint64_t>(at + 8 * i));
        hash = std::rotl(sums[0], 1) + std::rotl(sums[1], 7) + std::rotl(sums[2], 12) +
               std::rotl(sums[3], 18);
        for (const std::uint64_t sum : sums) hash = joined(hash, sum);
    }
    hash += bytes.size();
    for (; end - at >= 8; at += 8)
        hash = std::rotl(hash ^ mixed(0, load<std::uint64_t>(at)), 27) * prime1 + prime4;
    if (end - at >= 4) {
        hash = std::rotl(hash ^ load<std::uint32_t>(at) * prime1, 23) * prime2 + prime3;
        at += 4;
    }
    for (; at != end; ++at)
        hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * prime5, 11) * prime1;
    hash = (hash ^ hash >> 33) * prime2;
    hash = (hash ^ hash >> 29) * prime3;
    return hash ^ hash >> 32;
}

}  // namespace penstock::host
