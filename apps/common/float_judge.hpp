// Sums in single precision against references in double precision.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

namespace penstock::apps {

// A sum of products, and of the products without their signs.
struct exact_sum {
    double value = 0;
    double size = 0;
};

// Each thread has one of its own.
class float_judge {
public:
    // `limit`: the most that a sum may deviate, relative to its size. `products`: how many each
    // has.
    float_judge(double limit, std::uint64_t products)
        : limit_(limit), least_(static_cast<double>(products) * FLT_TRUE_MIN) {}

    void look(std::uint64_t place, float found, const exact_sum& reference) {
        // Past the largest number sums may be infinite, or not, by their order; with what is no
        // number there is nothing to compare.
        if (!(reference.size < FLT_MAX)) {
            ++not_judged_;
            return;
        }
        // Products below the smallest number lose up to that much each, however small they are.
        const double off =
            std::max(std::fabs(static_cast<double>(found) - reference.value) - least_, 0.0);
        const double deviation = off == 0             ? 0
                                 : reference.size > 0 ? off / reference.size
                                                      : INFINITY;
        // What is no number is as wrong as can be.
        const double judged = std::isnan(found) ? INFINITY : deviation;
        if (judged > worst_)
            worst_ = judged, place_ = place, found_ = found, expected_ = reference.value;
    }
    void add(const float_judge& other) {
        not_judged_ += other.not_judged_;
        if (other.worst_ > worst_)
            worst_ = other.worst_, place_ = other.place_, found_ = other.found_,
            expected_ = other.expected_;
    }

    [[nodiscard]] bool passes() const { return worst_ <= limit_; }
    [[nodiscard]] double limit() const { return limit_; }
    // Of the sum that deviates most.
    [[nodiscard]] double worst() const { return worst_; }
    [[nodiscard]] std::uint64_t place() const { return place_; }
    [[nodiscard]] float found() const { return found_; }
    [[nodiscard]] double expected() const { return expected_; }
    // Sums that single precision cannot hold, or with what is no number.
    [[nodiscard]] std::uint64_t not_judged() const { return not_judged_; }

private:
    double limit_, least_;
    double worst_ = 0, expected_ = 0;
    float found_ = 0;
    std::uint64_t place_ = 0, not_judged_ = 0;
};

}  // namespace penstock::apps
