// A file, whatever its name is.
#pragma once

#include <compare>
#include <cstdint>

namespace penstock::region {

struct file_key {
    std::uint64_t device = 0, inode = 0;
    auto operator<=>(const file_key&) const = default;
};

}  // namespace penstock::region
