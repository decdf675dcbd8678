// The shape of a benchmark result: one JSON object with the machine and a list of results, each Penstock over its baseline.
#pragma once

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <vector>

namespace penstock::bench {

struct result {
    std::string goal, name, backend;
    std::uint64_t page_bytes = 0;
    double value = 0;
    std::string unit, baseline;
    double baseline_value = 0;
    double ratio = 0;  // Penstock over the baseline, turned so that more is better
    double cpu_cores_used = 0;
    std::string note;
};

inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

inline std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown";
}

inline void print(const std::vector<result>& results, const std::string& device, const std::string& driver,
                  const std::string& commit) {
    utsname system{};
    uname(&system);
    std::printf("{\"machine\":{\"device\":\"%s\",\"driver\":\"%s\",\"cpu\":\"%s\",\"cores\":%u,\"kernel\":\"%s\",\"commit\":\"%s\"},\n\"results\":[\n",
                device.c_str(), driver.c_str(), processor_name().c_str(), std::thread::hardware_concurrency(),
                system.release, commit.c_str());
    for (std::size_t i = 0; i < results.size(); ++i) {
        const result& r = results[i];
        std::printf("{\"goal\":\"%s\",\"case\":\"%s\",\"backend\":\"%s\",\"page_bytes\":%llu,\"value\":%.4g,\"unit\":\"%s\","
                    "\"baseline\":\"%s\",\"baseline_value\":%.4g,\"ratio\":%.4f,\"cpu_cores_used\":%.2f,\"note\":\"%s\"}%s\n",
                    r.goal.c_str(), r.name.c_str(), r.backend.c_str(), static_cast<unsigned long long>(r.page_bytes), r.value,
                    r.unit.c_str(), r.baseline.c_str(), r.baseline_value, r.ratio, r.cpu_cores_used, r.note.c_str(),
                    i + 1 < results.size() ? "," : "");
    }
    std::printf("]}\n");
}

}  // namespace penstock::bench
