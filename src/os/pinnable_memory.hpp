// How much of a file's pages may be pinned in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <istream>
#include <string>

namespace penstock::host {

// MemAvailable of /proc/meminfo: free memory, and pages of files that the system could give up, so
// those of the file itself too. 0: it does not say.
inline std::uint64_t available_memory(std::istream& meminfo) {
    std::string name, line;
    std::uint64_t kibibytes = 0;
    while (meminfo >> name) {
        if (name == "MemAvailable:" && meminfo >> kibibytes) return kibibytes << 10;
        std::getline(meminfo, line);
    }
    return 0;
}

// Seven eighths of what is available, and of the limit of the process's container, if the system
// shows one (memory.max, a number or the word max). Pages that are pinned cannot be given up, so
// the system and its programs keep the rest.
inline std::uint64_t pinnable_of(std::istream& meminfo, std::istream& container_limit) {
    std::uint64_t bytes = available_memory(meminfo), limit = 0;
    if (container_limit >> limit) bytes = std::min(bytes, limit);
    return bytes / 8 * 7;
}

inline std::uint64_t pinnable_bytes() {
    std::ifstream meminfo("/proc/meminfo"), limit("/sys/fs/cgroup/memory.max");
    return pinnable_of(meminfo, limit);
}

}  // namespace penstock::host
