// Names of tensors: patterns that match them, and their order.
#pragma once

#include <string_view>

namespace penstock::formats {

inline bool is_pattern(std::string_view text) { return text.find('*') != text.npos; }

// Each `*` stands for any characters or none, all else for itself. Takes at most the product of
// both lengths in steps, and no memory.
bool matches(std::string_view pattern, std::string_view name);

// True if `a` comes before `b` in natural order: runs of digits compare as the numbers that they
// are, of any length, and all else by bytes. A total order: names of equal numbers with different
// zeros before them (shard_2, shard_02) compare by bytes.
bool comes_before(std::string_view a, std::string_view b);

}  // namespace penstock::formats
