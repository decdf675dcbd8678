// Figures: what was measured again and again, its median and spread, and the row of the report that
// it becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::bench {

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
