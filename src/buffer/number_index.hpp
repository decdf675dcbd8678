// A hash table from keys to numbers below a limit. The keys lie with whoever owns the numbers; here are the chains only, so that nothing grows.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "buffer/linked.hpp"

namespace penstock::buffer {

class number_index {
public:
    explicit number_index(std::uint32_t limit = 0) : first_(std::bit_ceil(std::uint64_t{limit} + 1), nothing), next_(limit) {}

    // The number with this hash for which `is_it` holds, or `nothing`.
    template <typename IsIt>
    [[nodiscard]] std::uint32_t find(std::uint64_t hash, const IsIt& is_it) const {
        std::uint32_t at = first_[hash & (first_.size() - 1)];
        while (at != nothing && !is_it(at)) at = next_[at];
        return at;
    }
    void add(std::uint64_t hash, std::uint32_t number) {
        std::uint32_t& first = first_[hash & (first_.size() - 1)];
        next_[number] = first;
        first = number;
    }
    // `number` was added with this hash.
    void remove(std::uint64_t hash, std::uint32_t number) {
        std::uint32_t* at = &first_[hash & (first_.size() - 1)];
        while (*at != number) at = &next_[*at];
        *at = next_[number];
    }

private:
    std::vector<std::uint32_t> first_, next_;
};

}  // namespace penstock::buffer
