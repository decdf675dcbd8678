// The statistics of runtimes as text that Prometheus reads (text format 0.0.4).
// docs/guide/operating.md lists the names.
#pragma once

#include "penstock/base/language.hpp"

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "penstock/statistics.hpp"

namespace penstock {

// Names and values. A name is letters, digits and '_', the first no digit; a value is any text.
using metric_labels = std::vector<std::pair<std::string, std::string>>;

struct labelled_statistics {
    statistics counted;
    metric_labels labels;  // no two runtimes of one text have the same
};

// Each metric stands once, with a line for each of the runtimes. None: the empty text.
std::string prometheus_text(std::span<const labelled_statistics> all);
std::string prometheus_text(const statistics& counted, const metric_labels& labels = {});

// A metric besides those of the statistics, in the same form.
struct metric_value {
    std::uint64_t value;
    metric_labels labels;
};
// `kind`: "gauge" or "counter", the name of which ends in "_total".
std::string prometheus_metric(const std::string& name, const std::string& kind,
                              const std::string& help, std::span<const metric_value> values);

}  // namespace penstock
