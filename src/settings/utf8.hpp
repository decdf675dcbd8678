// UTF-8 in names that the system has: names of files and programs are bytes, and may be cut in the
// middle of a letter, but the formats in which they are told (Prometheus, tables) take letters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::settings {

// The bytes of the letter at the front of `text`; 0: what stands there is no UTF-8, or there is
// nothing.
inline std::size_t letter_bytes(std::string_view text) {
    if (text.empty()) return 0;
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
    const std::size_t bytes = byte(0) < 0x80                       ? 1
                              : byte(0) >= 0xc2 && byte(0) < 0xe0  ? 2
                              : byte(0) >= 0xe0 && byte(0) < 0xf0  ? 3
                              : byte(0) >= 0xf0 && byte(0) <= 0xf4 ? 4
                                                                   : 0;
    if (bytes == 0 || bytes > text.size()) return 0;
    for (std::size_t i = 1; i < bytes; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    // Longer than needed, a half of a pair of UTF-16, or behind the last letter.
    const std::uint8_t second = bytes > 1 ? byte(1) : 0;
    const bool is_letter =
        !(byte(0) == 0xe0 && second < 0xa0) && !(byte(0) == 0xed && second >= 0xa0) &&
        !(byte(0) == 0xf0 && second < 0x90) && !(byte(0) == 0xf4 && second >= 0x90);
    return is_letter ? bytes : 0;
}

// The text with U+FFFD in place of each byte that is no part of a letter.
inline std::string in_letters(std::string_view text) {
    std::string out;
    while (!text.empty()) {
        const std::size_t bytes = letter_bytes(text);
        if (bytes == 0) out += "\xef\xbf\xbd";
        else out += text.substr(0, bytes);
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return out;
}

}  // namespace penstock::settings
