// Reads a range of a file, however many calls that takes.
#pragma once

#include <fcntl.h>

#include "os/env.hpp"

namespace penstock::host {

// How many bytes there are, fewer only at the end of the file; or a negative errno.
inline std::int64_t read_all(environment& env, int fd, std::byte* to, std::uint64_t bytes,
                             std::uint64_t offset) {
    std::uint64_t got = 0;
    while (got < bytes) {
        const std::int64_t more = env.read(fd, to + got, bytes - got, offset + got);
        if (more < 0) return more;
        if (more == 0) break;
        got += static_cast<std::uint64_t>(more);
    }
    return static_cast<std::int64_t>(got);
}

// From now on the operating system reads from this handle what it is asked for and no more: what
// comes behind may be to be had elsewhere.
inline void read_nothing_ahead(int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

}  // namespace penstock::host
