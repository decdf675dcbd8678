// The observer of what kernels change in files by write and truncate. It tells regions of the same
// file and mounts of this process, which are above this layer (region/kernel_writes.cpp). Before
// kernels read a file, the same object fetches what programs have stored to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "os/env.hpp"

namespace penstock::host {

struct file_change {
    std::uint64_t offset = 0, bytes = 0;
    bool cuts = false;  // or lengthens: the file is to end at `offset`
};

// Thread-safe.
class write_watch {
public:
    virtual ~write_watch() = default;
    // Does it, by `doing`, once, and returns what that returned, when all regions and mounts know.
    // Called with no lock that an operation of a program takes.
    virtual std::int64_t change(environment& env, int fd, const file_change& what,
                                const std::function<std::int64_t()>& doing) = 0;

    // Before an open: brings to the file what programs stored to mappings of it through mounts of
    // this process. Its facts may change. 0: there are no mounts; 1: there are; or a negative
    // errno: not all stores came. Called with no lock that an operation of a program takes.
    virtual int bring_home(const file_identity& file) = 0;

    // The one of the process, or null before there is a region or mount to tell. It lives as long
    // as the process.
    static std::atomic<write_watch*>& installed() {
        static std::atomic<write_watch*> one{nullptr};
        return one;
    }
};

inline std::int64_t change_told(environment& env, int fd, const file_change& what,
                                const std::function<std::int64_t()>& doing) {
    write_watch* const watch = write_watch::installed();
    return watch == nullptr ? doing() : watch->change(env, fd, what, doing);
}

inline int bring_stores_home(const file_identity& file) {
    write_watch* const watch = write_watch::installed();
    return watch == nullptr ? 0 : watch->bring_home(file);
}

}  // namespace penstock::host
