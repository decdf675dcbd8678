// How the descriptors that a process may have are shared out: to the file registries of a runtime's
// devices, to their windows, and to the program, which keeps at least a fifth.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock::host {

// For the registry of each of so many devices, and with one device for all registries of the
// process, which share it out while they live. Half of the limit, so that the program has the other
// half; or a third, where each file may have a second descriptor for direct reads.
inline std::size_t registry_handles(std::uint64_t limit, bool direct, std::size_t devices) {
    return std::max<std::size_t>(8, static_cast<std::size_t>(limit) / (direct ? 3 : 2) / devices);
}

// For each of so many sets of windows of a runtime: an eighth of the limit for all of them, of
// which other runtimes of the process take theirs too (window_rules::watched).
inline std::size_t window_handles(std::uint64_t limit, std::size_t sets) {
    constexpr std::uint64_t most = 4096;
    return static_cast<std::size_t>(std::min(most, limit / 8 / sets));
}

}  // namespace penstock::host
