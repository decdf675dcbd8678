#include "gather_rows.hpp"

#include <cstdio>
#include <fstream>

namespace penstock::bench {

std::uint64_t available_host_bytes() {
    std::ifstream facts("/proc/meminfo");
    std::uint64_t kibibytes = 0;
    for (std::string name, rest; facts >> name; std::getline(facts, rest))
        if (name == "MemAvailable:" && facts >> kibibytes) return kibibytes << 10;
    return UINT64_MAX;
}

status require_memory(const char* kind, std::uint64_t needed_bytes, std::uint64_t free_bytes) {
    if (needed_bytes <= free_bytes) return {};
    const auto gibibytes = [](std::uint64_t bytes) {
        return static_cast<double>(bytes) / (1u << 30);
    };
    char text[160];
    std::snprintf(text, sizeof text,
                  "it needs %.2f GiB of %s and %.2f GiB are free; give a smaller --file",
                  gibibytes(needed_bytes), kind, gibibytes(free_bytes));
    return {-ENOMEM, text};
}

}  // namespace penstock::bench
