#include "gather_rows.hpp"

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
    return {-ENOMEM, "it needs " + format_size(needed_bytes) + " of " + kind + " and " + format_size(free_bytes) + " are free; give a smaller --file"};
}

}  // namespace penstock::bench
