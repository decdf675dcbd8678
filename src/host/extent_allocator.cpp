#include "host/extent_allocator.hpp"

#include <iterator>

namespace penstock::host {

std::optional<std::uint64_t> extent_allocator::take(std::uint64_t units) {
    if (units == 0) return std::nullopt;
    for (auto piece = free_.begin(); piece != free_.end(); ++piece) {
        if (piece->second < units) continue;
        const std::uint64_t start = piece->first, left = piece->second - units;
        free_.erase(piece);
        if (left > 0) free_[start + units] = left;
        return start;
    }
    return std::nullopt;
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
            free_.erase(before);
        }
    }
    if (next != free_.end() && start + units == next->first) {
        units += next->second;
        free_.erase(next);
    }
    free_[start] = units;
    return true;
}

std::uint64_t extent_allocator::free_units() const {
    std::uint64_t sum = 0;
    for (const auto& [start, units] : free_) sum += units;
    return sum;
}

}  // namespace penstock::host
