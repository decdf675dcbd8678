#include "table/names.hpp"

#include <algorithm>
#include <cstddef>

namespace penstock::formats {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes the digits that `text` begins with, without zeros before them, away from it.
std::string_view take_number(std::string_view& text) {
    const auto* const end = std::find_if_not(text.begin(), text.end(), is_digit);
    std::string_view digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
    text.remove_prefix(digits.size());
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    return digits;
}

int compared(std::size_t a, std::size_t b) { return a < b ? -1 : static_cast<int>(a > b); }

int compared_as_numbers(std::string_view a, std::string_view b) {
    return a.size() != b.size() ? compared(a.size(), b.size()) : a.compare(b);
}

}  // namespace

// Where a `*` was met, the last one may take more characters if the rest does not match; those
// before it never need to.
bool matches(std::string_view pattern, std::string_view name) {
    std::size_t p = 0, n = 0, after_star = 0, taken_to = 0;
    bool has_star = false;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') {
            has_star = true;
            after_star = ++p;
            taken_to = n;
        } else if (p < pattern.size() && pattern[p] == name[n]) {
            ++p;
            ++n;
        } else if (has_star) {
            p = after_star;
            n = ++taken_to;
        } else {
            return false;
        }
    }
    return pattern.find_first_not_of('*', p) == pattern.npos;
}

bool comes_before(std::string_view a, std::string_view b) {
    std::string_view rest_a = a, rest_b = b;
    while (!rest_a.empty() && !rest_b.empty()) {
        if (is_digit(rest_a[0]) && is_digit(rest_b[0])) {
            const std::string_view number_a = take_number(rest_a), number_b = take_number(rest_b);
            if (const int order = compared_as_numbers(number_a, number_b); order != 0)
                return order < 0;
        } else {
            if (rest_a[0] != rest_b[0])
                return static_cast<unsigned char>(rest_a[0]) <
                       static_cast<unsigned char>(rest_b[0]);
            rest_a.remove_prefix(1);
            rest_b.remove_prefix(1);
        }
    }
    return rest_a.empty() != rest_b.empty() ? rest_a.empty() : a < b;
}

}  // namespace penstock::formats
