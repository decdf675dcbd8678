// Which page of a range is next: evenly, skewed, or one after the other.
#pragma once

#include <cstdint>
#include <numeric>

#include "common/dice.hpp"
#include "zipf.hpp"

namespace penstock::trace {

enum class pattern : std::uint8_t { uniform, zipf, loop };

// Puts ranks at places from 0 to count - 1, each at one of its own, and neighbours far from each
// other.
class scattered {
public:
    scattered(std::uint64_t count, std::uint64_t seed)
        : count_(count), stride_(stride_for(count)), shift_(mix64(seed + 1) % count) {}

    [[nodiscard]] std::uint64_t operator()(std::uint64_t rank) const {
        return count_ <= UINT32_MAX
                   ? (rank * stride_ + shift_) % count_
                   : static_cast<std::uint64_t>((wide{rank} * stride_ + shift_) % count_);
    }

private:
    __extension__ typedef unsigned __int128 wide;

    // Without a factor in common with the count: then no two ranks meet.
    static std::uint64_t stride_for(std::uint64_t count) {
        std::uint64_t stride =
            static_cast<std::uint64_t>(static_cast<double>(count) * 0.6180339887) | 1;
        while (std::gcd(stride, count) != 1) ++stride;
        return stride;
    }
    std::uint64_t count_, stride_, shift_;
};

// `first` and the count - 1 pages after it; count is above 0. The seed decides which pages are the
// hot ones.
class page_pattern {
public:
    page_pattern(pattern how, std::uint64_t first, std::uint64_t count, double skew,
                 std::uint64_t seed)
        : how_(how), first_(first), count_(count), ranks_(count, skew), places_(count, seed) {}

    std::uint64_t next(apps::dice& from) {
        if (how_ == pattern::uniform) return first_ + from.below(count_);
        if (how_ == pattern::loop) return first_ + at_++ % count_;
        return first_ + places_(ranks_.draw([&from] { return from.share(); }) - 1);
    }

private:
    pattern how_;
    std::uint64_t first_, count_, at_ = 0;
    zipf ranks_;
    scattered places_;
};

}  // namespace penstock::trace
