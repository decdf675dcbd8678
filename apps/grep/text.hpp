// Bytes, eight or sixty-four at a time, and the hash by which dictionary and text meet. The C
// locale decides: a word is made of [A-Za-z0-9_], and no byte from 0x80 up belongs to one.
#pragma once

#include <cstdint>
#include <cstring>

#include "penstock/base/hash.hpp"
#include "penstock/base/macros.hpp"

namespace penstock::grep {

inline constexpr std::uint32_t max_word_bytes = 255;  // longest dictionary word
inline constexpr std::uint32_t no_word = 0xffffffffu;

// One bit per byte value below 128, in two constants: no memory access on either processor.
constexpr PENSTOCK_HD PENSTOCK_INLINE bool is_constituent(unsigned char c) {
    constexpr std::uint64_t digits = 0x03ff000000000000ull;   // '0' to '9'
    constexpr std::uint64_t letters = 0x07fffffe87fffffeull;  // 'A' to 'Z', '_', 'a' to 'z'
    return c < 128 && (((c < 64 ? digits : letters) >> (c & 63)) & 1) != 0;
}

// Number of the lowest bit that is set; 64 for 0.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t lowest_bit(std::uint64_t bits) {
#if PENSTOCK_ON_DEVICE
    return bits == 0 ? 64 : static_cast<std::uint32_t>(__ffsll(static_cast<long long>(bits)) - 1);
#else
    return bits == 0 ? 64 : static_cast<std::uint32_t>(__builtin_ctzll(bits));
#endif
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t low_bits(std::uint32_t count) {
    return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

// The `count` (1 to 8) bytes at `at`, first byte lowest, zeros above. `room`: how many bytes may be
// read there. The GPU cannot load eight bytes from any address, so it takes the aligned words that
// hold at least one byte asked for.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t load_bytes(const unsigned char* at, std::uint32_t count,
                                                     [[maybe_unused]] std::uint64_t room) {
    std::uint64_t value = 0;
#if PENSTOCK_ON_DEVICE
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const auto* const word = reinterpret_cast<const std::uint64_t*>(address & ~std::uintptr_t{7});
    const auto skipped = static_cast<std::uint32_t>(address & 7);
    value = word[0] >> (8 * skipped);
    if (skipped + count > 8) value |= word[1] << (64 - 8 * skipped);
#else
    if (room >= 8) std::memcpy(&value, at, 8);
    else std::memcpy(&value, at, count);
#endif
    return value & low_bits(8 * count);
}

namespace detail {

inline constexpr std::uint64_t each_byte = 0x0101010101010101ull, top_bits = 0x80 * each_byte;

// In every byte below 0x80 of `bytes`: the top bit, if the byte is at least `least`.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t at_least(std::uint64_t bytes,
                                                             std::uint32_t least) {
    return bytes + (0x80 - least) * each_byte;
}

// One bit per byte from the top bits of eight bytes: the product gathers them in its highest byte.
constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather(std::uint64_t tops) {
    return ((tops >> 7) * 0x0102040810204080ull) >> 56;
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t constituents(std::uint64_t bytes) {
    const std::uint64_t low = bytes & ~top_bits, lower_case = low | 0x20 * each_byte;
    const std::uint64_t digits = at_least(low, '0') & ~at_least(low, '9' + 1);
    const std::uint64_t letters = at_least(lower_case, 'a') & ~at_least(lower_case, 'z' + 1);
    const std::uint64_t underscores = at_least(low, '_') & ~at_least(low, '_' + 1);
    return gather((digits | letters | underscores) & ~bytes & top_bits);
}

constexpr PENSTOCK_HD PENSTOCK_INLINE std::uint64_t zeros(std::uint64_t bytes) {
    return gather(~(at_least(bytes & ~top_bits, 1) | bytes) & top_bits);
}

}  // namespace detail

// What sixty-four bytes are, one bit each.
struct byte_kinds {
    std::uint64_t constituent = 0;
    std::uint64_t zero = 0;
};

// The `count` (1 to 64) bytes at `at`; `room` as above.
PENSTOCK_HD PENSTOCK_INLINE byte_kinds look_at(const unsigned char* at, std::uint32_t count,
                                               std::uint64_t room) {
    byte_kinds kinds;
    for (std::uint32_t i = 0; i < count; i += 8) {
        const std::uint64_t bytes = load_bytes(at + i, count - i < 8 ? count - i : 8, room - i);
        kinds.constituent |= detail::constituents(bytes) << i;
        kinds.zero |= detail::zeros(bytes) << i;
    }
    kinds.zero &= low_bits(count);
    return kinds;
}

// Hash of a byte string, and its first eight bytes, so that a string of up to eight is compared in
// one step.
struct text_hash {
    std::uint64_t value;
    std::uint64_t head;
    std::uint32_t bytes;
};

PENSTOCK_HD PENSTOCK_INLINE text_hash hash_text(const unsigned char* at, std::uint32_t bytes,
                                                std::uint64_t room) {
    text_hash out{0x9e3779b97f4a7c15ull + (std::uint64_t{bytes} << 56), 0, bytes};
    for (std::uint32_t i = 0; i < bytes; i += 8) {
        const std::uint64_t chunk = load_bytes(at + i, bytes - i < 8 ? bytes - i : 8, room - i);
        if (i == 0) out.head = chunk;
        out.value = mix64(out.value ^ chunk);
    }
    return out;
}

}  // namespace penstock::grep
