// A page from its file and to it, whatever a call of the system does of it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "os/env.hpp"
#include "os/size_signal.hpp"

namespace penstock::buffer {

// Not for ever: a thread that serves others must not hang in a call that says "again".
inline constexpr int most_attempts = 1000;

// `bytes` of the page are in the file, and `room` is for all of it, which is asked for: of a file
// that is read past the page cache no odd length can be. 0; -ESTALE: the file has become shorter;
// or another error.
inline int read_whole(host::environment& env, int fd, std::byte* to, std::uint64_t bytes,
                      std::uint64_t room, std::uint64_t offset) {
    int again = 0;
    for (std::uint64_t done = 0; done < bytes;) {
        const std::int64_t count = env.read(fd, to + done, room - done, offset + done);
        if ((count == -EINTR || count == -EAGAIN) && ++again < most_attempts) continue;
        const bool odd = done != 0 && count == -EINVAL;  // the file ends there, with an odd length
        if (count <= 0) return count < 0 && !odd ? static_cast<int>(count) : -ESTALE;
        done += static_cast<std::uint64_t>(count);
    }
    return 0;
}

// What of the page's room is behind the end of its file. Usually nothing is, and wide stores of
// nothing may still wait for the memory behind the room, which no thread has used yet.
inline void clear_behind(std::byte* page, std::uint64_t bytes, std::uint64_t room) {
    if (bytes < room) std::memset(page + bytes, 0, room - bytes);
}

inline int write_whole(host::environment& env, int fd, const std::byte* from, std::uint64_t bytes,
                       std::uint64_t offset) {
    const host::without_size_signal guard;
    int again = 0;
    for (std::uint64_t done = 0; done < bytes;) {
        const host::memory_piece piece{from + done, bytes - done};
        const std::int64_t count = env.write(fd, &piece, 1, offset + done);
        if ((count == -EINTR || count == -EAGAIN) && ++again < most_attempts) continue;
        if (count <= 0) return count < 0 ? static_cast<int>(count) : -EIO;
        done += static_cast<std::uint64_t>(count);
    }
    return 0;
}

}  // namespace penstock::buffer
