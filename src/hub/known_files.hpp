// Of which files runtimes of this process may have pages: a count for each of some thousand classes
// of files, so that a read of any other file finds that out by one load, and takes no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "penstock/base/hash.hpp"

namespace penstock::host {

// Thread-safe. A registry adds a file when it gives it its first slot, and removes it with the
// last.
class known_files {
public:
    static void add(std::uint64_t device, std::uint64_t inode) { ++count_of(device, inode); }
    static void remove(std::uint64_t device, std::uint64_t inode) { --count_of(device, inode); }
    // True also for some that are not known.
    static bool may_have(std::uint64_t device, std::uint64_t inode) {
        return count_of(device, inode) != 0;
    }

private:
    static std::atomic<std::uint32_t>& count_of(std::uint64_t device, std::uint64_t inode) {
        static std::array<std::atomic<std::uint32_t>, 4096> counts{};
        return counts[mix64(inode ^ device << 32) % counts.size()];
    }
};

}  // namespace penstock::host
