// An allocator that gives out pieces of a range of units and joins freed neighbours. The host
// manages the page-word arena and the path arena with it. It takes the shortest free piece that is
// long enough, and the first of equal pieces. So its cost grows with the logarithm of the number of
// free pieces, while a search from the front met every hole that closed files had left, under the
// lock that all opens share. Not thread-safe: the file registry's lock guards it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace penstock::host {

class extent_allocator {
public:
    explicit extent_allocator(std::uint64_t units) : limit_(units) {
        if (units > 0) insert(0, units);
    }

    // Returns the start of a piece of `units` (at least 1), or nothing if no free piece is long
    // enough.
    std::optional<std::uint64_t> take(std::uint64_t units);

    // Gives a piece back. If part of it is free already or outside the range, returns false and
    // changes nothing.
    bool give(std::uint64_t start, std::uint64_t units);

    [[nodiscard]] std::uint64_t free_units() const;
    [[nodiscard]] std::size_t free_pieces() const { return free_.size(); }

private:
    using piece = std::map<std::uint64_t, std::uint64_t>::iterator;
    void insert(std::uint64_t start, std::uint64_t units);
    void erase(piece which);

    std::map<std::uint64_t, std::uint64_t> free_;  // start -> length; never adjacent, never empty
    std::set<std::pair<std::uint64_t, std::uint64_t>>
        by_length_;  // (length, start) of the same pieces
    std::uint64_t limit_;
};

}  // namespace penstock::host
