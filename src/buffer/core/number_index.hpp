// A hash table from keys to numbers below a limit. The keys lie with the owner of the numbers; an
// entry has the number and 32 bits of its key's hash, so that a search hardly ever looks at a key
// that is not the one. At most half full, entries in a row from where the hash says, rows closed up
// when one goes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "buffer/core/fetch.hpp"
#include "buffer/core/linked.hpp"

namespace penstock::buffer {

class number_index {
public:
    explicit number_index(std::uint32_t limit = 0)
        : entries_(std::min(std::bit_ceil(2 * std::uint64_t{limit} + 2), std::uint64_t{1} << 32)),
          mask_(static_cast<std::uint32_t>(entries_.size() - 1)) {}

    // The number with this hash for which `is_it` holds, or `nothing`.
    template <typename IsIt>
    [[nodiscard]] std::uint32_t find(std::uint64_t hash, const IsIt& is_it) const {
        const auto part = static_cast<std::uint32_t>(hash);
        for (std::uint32_t at = part & mask_; entries_[at].number != nothing; at = (at + 1) & mask_)
            if (entries_[at].hash == part && is_it(entries_[at].number)) return entries_[at].number;
        return nothing;
    }
    void add(std::uint64_t hash, std::uint32_t number) {
        const auto part = static_cast<std::uint32_t>(hash);
        std::uint32_t at = part & mask_;
        while (entries_[at].number != nothing) at = (at + 1) & mask_;
        entries_[at] = {number, part};
    }
    // `number` was added with this hash.
    void remove(std::uint64_t hash, std::uint32_t number) {
        std::uint32_t hole = static_cast<std::uint32_t>(hash) & mask_;
        while (entries_[hole].number != number) hole = (hole + 1) & mask_;
        // An entry may fill the hole if a search for it begins at the hole or before.
        for (std::uint32_t at = (hole + 1) & mask_; entries_[at].number != nothing;
             at = (at + 1) & mask_) {
            if (((at - entries_[at].hash) & mask_) < ((at - hole) & mask_)) continue;
            entries_[hole] = entries_[at];
            hole = at;
        }
        entries_[hole].number = nothing;
    }
    // The number that a search for this hash will look at first, or `nothing`.
    [[nodiscard]] std::uint32_t likely(std::uint64_t hash) const {
        return find(hash, [](std::uint32_t) { return true; });
    }
    // This hash will be looked for.
    PENSTOCK_FETCHING void expect(std::uint64_t hash) const {
        fetch(&entries_[static_cast<std::uint32_t>(hash) & mask_]);
    }

private:
    struct entry {
        std::uint32_t number = nothing, hash = 0;
    };
    std::vector<entry> entries_;
    std::uint32_t mask_;
};

}  // namespace penstock::buffer
