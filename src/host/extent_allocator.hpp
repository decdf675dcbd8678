// Gives out pieces of a range of units, first fit, and joins freed neighbours. The host manages the page-word arena and
// the path arena with it. Not thread-safe: the file registry's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace penstock::host {

class extent_allocator {
public:
    explicit extent_allocator(std::uint64_t units) : limit_(units) {
        if (units > 0) free_[0] = units;
    }

    // Start of a piece of `units` (at least 1), or nothing if no free piece is long enough.
    std::optional<std::uint64_t> take(std::uint64_t units);

    // Gives a piece back. False, and nothing changes, if part of it is free already or outside the range.
    bool give(std::uint64_t start, std::uint64_t units);

    [[nodiscard]] std::uint64_t free_units() const;
    [[nodiscard]] std::size_t free_pieces() const { return free_.size(); }

private:
    std::map<std::uint64_t, std::uint64_t> free_;  // start -> length; never adjacent, never empty
    std::uint64_t limit_;
};

}  // namespace penstock::host
