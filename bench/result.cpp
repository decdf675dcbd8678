#include "result.hpp"

#include <algorithm>
#include <cstdio>

namespace penstock::bench {

double series::median() const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

series series::times(double factor) const {
    series out = *this;
    for (double& value : out.values_) value *= factor;
    return out;
}

std::string series::spread() const {
    const double middle = median();
    if (values_.empty() || middle == 0) return "none";
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    char text[64];
    std::snprintf(text, sizeof text, "%+.1f to %+.1f %%", 100 * (*least / middle - 1),
                  100 * (*most / middle - 1));
    return text;
}

bool smaller_is_better(const std::string& unit) {
    return unit == "us" || unit == "ms" || unit == "s" || unit == "bytes loaded per byte asked for";
}

double ratio_of(const figure& one) {
    const double ours = one.value.median(), theirs = one.baseline_value.median();
    return smaller_is_better(one.unit) ? theirs / ours : ours / theirs;
}

std::string note_of(const figure& one) {
    if (one.value.size() < 2) return one.note;
    std::string out =
        "median of " + std::to_string(one.value.size()) + ", spread " + one.value.spread();
    if (one.baseline_value.size() > 1) out += ", baseline " + one.baseline_value.spread();
    return one.note.empty() ? out : out + "; " + one.note;
}

}  // namespace penstock::bench
