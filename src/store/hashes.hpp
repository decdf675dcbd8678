// Two well-known hash functions that blocks of a store need: SHA-256 (FIPS 180-4) names a block,
// and XXH64 (github.com/Cyan4973/xxHash) tells whether its bytes are whole. Both for little-endian
// machines, as the rest of the library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::host {

using sha256_digest = std::array<std::uint8_t, 32>;
sha256_digest sha256(std::span<const std::byte> bytes);

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace penstock::host
