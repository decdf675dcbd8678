#include <algorithm>
#include <array>

#include "grep_buffers.hpp"
#include "text.hpp"

namespace penstock::grep {

namespace {

// Before its buffer, grep allocates for the word it is given, and how much depends on the word's
// length. In units of 16 bytes, by length - 1. Read off the result of malloc(102408) in runs of
// grep with words of each length; checked with 1,500 random words. Words with characters that are
// special in regular expressions ($ * . [ \\ ^) can differ.
constexpr std::array<std::uint8_t, max_word_bytes> by_length = {
    192, 185, 200, 205, 214, 223, 223, 84,  125, 132, 175, 241, 45,  89,  194, 14,  236, 27,  50,
    103, 131, 184, 15,  13,  61,  117, 104, 122, 147, 227, 5,   137, 162, 156, 186, 236, 205, 33,
    63,  113, 136, 155, 188, 235, 73,  120, 144, 168, 201, 236, 13,  47,  176, 87,  183, 65,  18,
    246, 246, 148, 180, 215, 247, 220, 171, 238, 233, 72,  115, 154, 182, 204, 14,  46,  24,  51,
    133, 160, 192, 225, 2,   57,  126, 97,  131, 216, 0,   36,  59,  98,  127, 188, 206, 237, 84,
    248, 84,  122, 212, 180, 248, 1,   29,  102, 156, 214, 243, 18,  48,  15,  89,  122, 30,  192,
    157, 251, 26,  60,  56,  61,  58,  63,  143, 98,  120, 97,  122, 85,  113, 143, 33,  131, 118,
    138, 179, 51,  97,  118, 146, 193, 221, 4,   82,  119, 147, 123, 205, 243, 165, 252, 24,  80,
    72,  107, 153, 164, 201, 34,  62,  99,  66,  87,  124, 153, 231, 14,  42,  110, 102, 123, 151,
    171, 11,  32,  69,  97,  125, 155, 183, 21,  15,  45,  64,  129, 130, 151, 188, 47,  66,  105,
    133, 166, 185, 206, 46,  75,  139, 11,  105, 164, 87,  120, 201, 233, 8,   32,  72,  95,  123,
    216, 232, 13,  41,  19,  47,  124, 98,  187, 215, 253, 16,  55,  74,  111, 198, 237, 6,   44,
    84,  58,  86,  148, 140, 173, 204, 236, 63,  101, 248, 152, 183, 150, 181, 213, 6,   48,  70,
    197, 169, 199, 236, 12,  235, 9,   93,
};

// The lengths for which it matters whether the first character occurs again.
struct exception {
    std::size_t length;
    std::uint8_t offset;
};
constexpr exception with_first_repeated[] = {{7, 217}, {9, 116}, {16, 15}, {20, 111}};

}  // namespace

std::uint32_t buffer_offset(const std::string& word) {
    const std::size_t length = std::clamp<std::size_t>(word.size(), 1, by_length.size());
    std::uint32_t units = by_length[length - 1];
    for (const exception& e : with_first_repeated)
        if (e.length == length && word.find(word[0], 1) != std::string::npos) units = e.offset;
    return units * 16;
}

}  // namespace penstock::grep
