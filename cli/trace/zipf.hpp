// Ranks from 1 to n, rank k with probability proportional to k to the power of -s, without a table,
// so that n may be large.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace penstock::trace {

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

}  // namespace penstock::trace
