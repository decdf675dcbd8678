// Writes of kernels that are to be whole.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "penstock/write.hpp"

namespace penstock::apps {

// Whole group: all bytes to the file, as write() does. 0 or a negative errno. A write that ends
// early does not say why, so the rest is tried once more: that gives the reason.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t write_whole(const Group& g, const runtime_ref& fs, int fd,
                                                     const void* from, std::int64_t bytes,
                                                     std::int64_t offset) {
    std::int64_t done = write(g, fs, fd, from, bytes, offset);
    if (done > 0 && done < bytes) {
        const std::int64_t rest = write(g, fs, fd, static_cast<const std::byte*>(from) + done,
                                        bytes - done, offset + done);
        done = rest < 0 ? rest : done + rest;
    }
    return done == bytes ? 0 : done < 0 ? done : -EIO;
}

}  // namespace penstock::apps
