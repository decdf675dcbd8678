// Which page of a range is accessed next: evenly, skewed, or one after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "common/numbers.hpp"

namespace penstock::trace {

// Ranks from 1 to n, rank k with probability proportional to k to the power of -s, without a table,
// so that n may be large.
//
// By rejection-inversion (Hoermann and Derflinger 1996): a point is drawn evenly below the hat, the
// integral of x^-s over ranks widened by a half on either side; it gives its rank unless it lies in
// the sliver between hat and bars.
class zipf {
public:
    zipf(std::uint64_t count, double skew) : count_(static_cast<double>(count)), skew_(skew) {
        left_ = area(1.5) - 1;
        right_ = area(count_ + 0.5);
        sure_ = 2 - place(area(2.5) - height(2));
    }

    // `even()` gives numbers evenly from 0 to 1, without 1.
    template <typename Even>
    std::uint64_t draw(const Even& even) const {
        for (;;) {
            const double under = right_ + even() * (left_ - right_), x = place(under);
            const double rank = std::clamp(std::floor(x + 0.5), 1.0, count_);
            if (rank - x <= sure_ || under >= area(rank + 0.5) - height(rank))
                return static_cast<std::uint64_t>(rank);
        }
    }

private:
    [[nodiscard]] double height(double x) const { return std::exp(-skew_ * std::log(x)); }

    // The integral of x^-s from 1 to x, and its inverse. In terms of expm1 and log1p, so that a
    // skew near 1 loses no digits.
    [[nodiscard]] double area(double x) const {
        const double l = std::log(x), t = (1 - skew_) * l;
        return std::abs(t) < 1e-12 ? l : std::expm1(t) / (1 - skew_);
    }
    [[nodiscard]] double place(double y) const {
        const double t = std::max((1 - skew_) * y, -1.0);
        return std::abs(t) < 1e-12 ? std::exp(y) : std::exp(std::log1p(t) / (1 - skew_));
    }

    double count_, skew_, left_ = 0, right_ = 0, sure_ = 0;
};

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

enum class pattern : std::uint8_t { uniform, zipf, loop };

// `first` and the count - 1 pages after it; count is above 0. The seed decides which pages are the
// hot ones.
class page_pattern {
public:
    page_pattern(pattern kind, std::uint64_t first, std::uint64_t count, double skew,
                 std::uint64_t seed)
        : kind_(kind), first_(first), count_(count), ranks_(count, skew), places_(count, seed) {}

    std::uint64_t next(apps::dice& from) {
        if (kind_ == pattern::uniform) return first_ + from.below(count_);
        if (kind_ == pattern::loop) return first_ + at_++ % count_;
        return first_ + places_(ranks_.draw([&from] { return from.share(); }) - 1);
    }

private:
    pattern kind_;
    std::uint64_t first_, count_, at_ = 0;
    zipf ranks_;
    scattered places_;
};

}  // namespace penstock::trace
