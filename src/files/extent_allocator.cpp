#include "files/extent_allocator.hpp"

#include <iterator>

namespace penstock::host {

void extent_allocator::insert(std::uint64_t start, std::uint64_t units) {
    free_[start] = units;
    by_length_.emplace(units, start);
}

void extent_allocator::erase(piece which) {
    by_length_.erase({which->second, which->first});
    free_.erase(which);
}

std::optional<std::uint64_t> extent_allocator::take(std::uint64_t units) {
    if (units == 0) return std::nullopt;
    const auto best = by_length_.lower_bound({units, 0});
    if (best == by_length_.end()) return std::nullopt;
    // What is left over keeps the places of both in memory: nothing is given back to be taken
    // again.
    auto by_length = by_length_.extract(best);
    const auto [length, start] = by_length.value();
    auto piece_left = free_.extract(start);
    if (length > units) {
        piece_left.key() = start + units;
        piece_left.mapped() = length - units;
        by_length.value() = {length - units, start + units};
        free_.insert(std::move(piece_left));
        by_length_.insert(std::move(by_length));
    }
    return start;
}

bool extent_allocator::give(std::uint64_t start, std::uint64_t units) {
    if (units == 0 || start >= limit_ || units > limit_ - start) return false;
    auto next = free_.lower_bound(start);
    if (next != free_.end() && start + units > next->first) return false;
    if (next != free_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second > start) return false;
        if (before->first + before->second == start) {
            start = before->first;
            units += before->second;
            erase(before);
        }
    }
    if (next != free_.end() && start + units == next->first) {
        units += next->second;
        erase(next);
    }
    insert(start, units);
    return true;
}

std::uint64_t extent_allocator::free_units() const {
    std::uint64_t sum = 0;
    for (const auto& [start, units] : free_) sum += units;
    return sum;
}

}  // namespace penstock::host
