// An allocator that gives out pieces of a range of units and joins freed neighbours. The host
// manages the page-word arena and the path arena with it. It takes the shortest free piece that is
// long enough, and the first of equal pieces. So its cost grows with the logarithm of the number of
// free pieces, while a search from the front met every hole that closed files had left, under the
// lock that all opens share. Not thread-safe: the file registry's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace penstock::host {

class extent_allocator {
public:
    explicit extent_allocator(std::uint64_t units) : limit_(units) {
        if (units == 0) return;
        free_[0] = units;
        by_length_.emplace(units, 0);
    }

    // Returns the start of a piece of `units` (at least 1), or nothing if no free piece is long
    // enough. Without memory it throws and changes nothing.
    std::optional<std::uint64_t> take(std::uint64_t units);

    // Gives a piece back. If part of it is free already or outside the range, returns false and
    // changes nothing. A piece that is given back as it was taken needs no memory, so an end has
    // none to fear for; of parts of it, as take().
    bool give(std::uint64_t start, std::uint64_t units);

    [[nodiscard]] std::uint64_t free_units() const;
    [[nodiscard]] std::size_t free_pieces() const { return free_.size(); }

private:
    using starts = std::map<std::uint64_t, std::uint64_t>;
    using lengths = std::set<std::pair<std::uint64_t, std::uint64_t>>;
    // The places in memory of one free piece.
    struct places {
        starts::node_type start;
        lengths::node_type length;
    };
    places places_of(starts::iterator piece);
    places spare_places();
    void insert(places in, std::uint64_t start, std::uint64_t units);
    void spare(places unused);
    void add_spare();

    starts free_;        // start -> length; never adjacent, never empty
    lengths by_length_;  // (length, start) of the same pieces
    // Places for as many free pieces as there can be more, once all that is taken is given back:
    // one for each that is taken, and one, less those that are free. Their keys only differ.
    starts spare_starts_;
    lengths spare_lengths_;
    std::uint64_t next_spare_ = 0;
    std::size_t taken_ = 0;
    std::uint64_t limit_;
};

}  // namespace penstock::host
