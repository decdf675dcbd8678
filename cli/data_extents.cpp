#include "data_extents.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace penstock::cp {

std::vector<file_range> data_of(int fd, std::uint64_t size_bytes, std::uint64_t piece_bytes) {
    std::vector<file_range> out;
    for (std::uint64_t at = 0; at < size_bytes;) {
        const off_t data = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 && errno == ENXIO) break;  // a hole up to the end
        // Where one of the two calls fails the rest counts as data.
        const off_t hole = data < 0 ? -1 : ::lseek(fd, data, SEEK_HOLE);
        const std::uint64_t begin =
            (data < 0 ? at : static_cast<std::uint64_t>(data)) / piece_bytes * piece_bytes;
        std::uint64_t end = hole <= data ? size_bytes
                                         : (static_cast<std::uint64_t>(hole) + piece_bytes - 1) /
                                               piece_bytes * piece_bytes;
        end = std::min(end, size_bytes);
        if (begin >= end) break;  // data behind what was the end a moment ago
        if (!out.empty() && out.back().offset_bytes + out.back().bytes >= begin)
            out.back().bytes = end - out.back().offset_bytes;
        else out.push_back({begin, end - begin});
        at = end;
    }
    return out;
}

}  // namespace penstock::cp
