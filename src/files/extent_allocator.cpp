#include "files/extent_allocator.hpp"

#include <iterator>
#include <utility>

namespace penstock::host {

extent_allocator::places extent_allocator::places_of(starts::iterator piece) {
    auto length = by_length_.extract({piece->second, piece->first});
    return {free_.extract(piece), std::move(length)};
}

extent_allocator::places extent_allocator::spare_places() {
    if (spare_starts_.empty()) add_spare();
    return {spare_starts_.extract(spare_starts_.begin()),
            spare_lengths_.extract(spare_lengths_.begin())};
}

void extent_allocator::insert(places in, std::uint64_t start, std::uint64_t units) {
    in.start.key() = start;
    in.start.mapped() = units;
    in.length.value() = {units, start};
    free_.insert(std::move(in.start));
    by_length_.insert(std::move(in.length));
}

void extent_allocator::spare(places unused) {
    unused.start.key() = next_spare_;
    unused.length.value() = {next_spare_, 0};
    spare_starts_.insert(std::move(unused.start));
    spare_lengths_.insert(std::move(unused.length));
    ++next_spare_;
}

void extent_allocator::add_spare() {
    const auto start = spare_starts_.emplace(next_spare_, 0).first;
    try {
        spare_lengths_.emplace(next_spare_, 0);
    } catch (...) {
        spare_starts_.erase(start);
        throw;
    }
    ++next_spare_;
}

std::optional<std::uint64_t> extent_allocator::take(std::uint64_t units) {
    if (units == 0) return std::nullopt;
    const auto best = by_length_.lower_bound({units, 0});
    if (best == by_length_.end()) return std::nullopt;
    const auto [length, start] = *best;
    add_spare();
    // What is left over keeps the places in memory.
    places left = places_of(free_.find(start));
    if (length > units) insert(std::move(left), start + units, length - units);
    else spare(std::move(left));
    ++taken_;
    return start;
}

bool extent_allocator::give(std::uint64_t start, std::uint64_t units) {
    if (units == 0 || start >= limit_ || units > limit_ - start) return false;
    const auto next = free_.lower_bound(start);
    if (next != free_.end() && start + units > next->first) return false;
    const auto before = next == free_.begin() ? free_.end() : std::prev(next);
    if (before != free_.end() && before->first + before->second > start) return false;
    const bool joins_before = before != free_.end() && before->first + before->second == start;
    const bool joins_next = next != free_.end() && start + units == next->first;
    const std::uint64_t begin = joins_before ? before->first : start;
    const std::uint64_t end = joins_next ? next->first + next->second : start + units;
    places joined = joins_before ? places_of(before)
                    : joins_next ? places_of(next)
                                 : spare_places();
    if (joins_before && joins_next) spare(places_of(next));
    insert(std::move(joined), begin, end - begin);
    if (taken_ != 0) --taken_;
    while (!spare_starts_.empty() && spare_starts_.size() + free_.size() > taken_ + 1)
        static_cast<void>(spare_places());
    return true;
}

std::uint64_t extent_allocator::free_units() const {
    std::uint64_t sum = 0;
    for (const auto& [start, units] : free_) sum += units;
    return sum;
}

}  // namespace penstock::host
