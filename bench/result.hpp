// Measured values: time that passed, figures with median and spread, and rows of the report.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace penstock::bench {

// Time that passed, and processor time that this process used meanwhile.

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Of all threads of this process: user and system.
inline double cpu_s() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class stopwatch {
public:
    [[nodiscard]] double seconds() const { return now_s() - began_s_; }
    // Processors kept busy in the mean since the start, given how long that was.
    [[nodiscard]] double cores(double over_s) const {
        return over_s > 0 ? (cpu_s() - used_s_) / over_s : 0;
    }

private:
    double began_s_ = now_s(), used_s_ = cpu_s();
};

// Figures: what was measured again and again, its median and spread, and the row of the report that
// it becomes.

// The values of one figure, one for each repeat.
class series {
public:
    series() = default;
    explicit series(double only) : values_{only} {}
    void add(double value) { values_.push_back(value); }
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] double last() const { return values_.back(); }
    [[nodiscard]] double median() const;
    [[nodiscard]] series times(double factor) const;
    // "-1.2 to +3.4 %": smallest and largest around the median.
    [[nodiscard]] std::string spread() const;

private:
    std::vector<double> values_;
};

// One row: Penstock and its baseline in the same run.
struct figure {
    std::string goal;  // a row of the goals, or the number of an issue
    std::string name;
    std::string backend;
    std::uint64_t page_bytes = 0;  // 0: nothing that has pages
    series value;
    std::string unit;
    std::string baseline;
    series baseline_value;
    series
        cores;  // processors that this process kept busy meanwhile; empty: not measured, shown as 0
    std::string note;  // median and spread are put before it
};

// Times and ratios of waste: there the quotient is turned round, so that more is better in every
// row.
bool smaller_is_better(const std::string& unit);

double ratio_of(const figure& one);

// "median of 5, spread -1 to +2 %, baseline -1 to +1 %; NOTE"
std::string note_of(const figure& one);

}  // namespace penstock::bench
