// Bytes, and the hash by which dictionary and text meet. The C locale decides: a word is made of [A-Za-z0-9_], and no
// byte from 0x80 up belongs to one.
#pragma once

#include <cstdint>

#include "penstock/base/hash.hpp"
#include "penstock/base/macros.hpp"

namespace penstock::grep {

inline constexpr std::uint32_t max_word_bytes = 255;  // longest dictionary word
inline constexpr std::uint32_t no_word = 0xffffffffu;

// One bit per byte value below 128. A table of bits in two constants: no memory access on either processor.
constexpr PENSTOCK_HD PENSTOCK_INLINE bool is_constituent(unsigned char c) {
    constexpr std::uint64_t digits = 0x03ff000000000000ull;             // '0' to '9'
    constexpr std::uint64_t letters = 0x07fffffe87fffffeull;            // 'A' to 'Z', '_', 'a' to 'z'
    return c < 128 && (((c < 64 ? digits : letters) >> (c & 63)) & 1) != 0;
}

// Hash of a byte string, fed byte by byte, eight bytes mixed at a time. `head` keeps the first eight bytes, so that a
// string of up to eight is compared in one step.
struct text_hash {
    std::uint64_t mixed = 0x9e3779b97f4a7c15ull;
    std::uint64_t chunk = 0;
    std::uint64_t head = 0;
    std::uint32_t bytes = 0;

    PENSTOCK_HD PENSTOCK_INLINE void add(unsigned char c) {
        chunk |= std::uint64_t{c} << (8 * (bytes & 7));
        ++bytes;
        if ((bytes & 7) == 0) {
            if (bytes == 8) head = chunk;
            mixed = mix64(mixed ^ chunk);
            chunk = 0;
        }
    }
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE std::uint64_t first_eight() const { return bytes < 8 ? chunk : head; }
    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE std::uint64_t value() const {
        return mix64(mixed ^ chunk ^ (std::uint64_t{bytes} << 56));
    }
};

}  // namespace penstock::grep
