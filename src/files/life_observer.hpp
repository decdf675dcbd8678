// What a file registry tells of the lives of its files, for caches that are linked
// (links/links.hpp).
#pragma once

#include <cstdint>

#include "os/env.hpp"

namespace penstock::host {

// A file in one of the lives of its slot, and where the device finds its page words.
struct file_life {
    std::uint32_t slot = 0, generation = 0;
    std::uint64_t table = 0;
    bool two_level = false;
    file_identity identity;
};

// The registry calls all but `settle` with its lock held, in the order in which things happen: they
// keep what they are told and wait for nothing. It calls `settle` without the lock, before it
// answers the request that caused the change.
class life_observer {
public:
    virtual ~life_observer() = default;
    // The slot has the file's pages as they were at that identity, and no other.
    virtual void entered(const file_life& life) = 0;
    // The device may store to the file's pages once the open is answered.
    virtual void written(const file_life& life) = 0;
    // The slot's pages are no longer those of that identity: the file was written here, or the slot
    // goes to another file.
    virtual void ended(const file_life& life) = 0;
    // Returns when every device that looks at others has all that was told before this call.
    virtual void settle() = 0;
};

}  // namespace penstock::host
