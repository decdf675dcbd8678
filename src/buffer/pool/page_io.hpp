// Pages from their files and to them, whatever a call of the system does of a page; and reads that
// go on while their session does something else.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <string>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "os/env.hpp"
#include "os/size_signal.hpp"

namespace penstock::buffer {

// How long something took.
class stopwatch {
public:
    // Since it was made.
    [[nodiscard]] std::uint64_t ns() const {
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::steady_clock::now() - begun_)
                                              .count());
    }

private:
    std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// `bytes` of the page are in the file, and `room` is for all of it, which is asked for: of a file
// that is read past the page cache no odd length can be. 0; -ESTALE: the file has become shorter;
// or another error.
inline int read_whole(host::environment& env, int fd, std::byte* to, std::uint64_t bytes,
                      std::uint64_t room, std::uint64_t offset) {
    int again = 0;
    for (std::uint64_t done = 0; done < bytes;) {
        const std::int64_t count = env.read(fd, to + done, room - done, offset + done);
        if ((count == -EINTR || count == -EAGAIN) && ++again < host::most_attempts) continue;
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
        if ((count == -EINTR || count == -EAGAIN) && ++again < host::most_attempts) continue;
        if (count <= 0) return count < 0 ? static_cast<int>(count) : -EIO;
        done += static_cast<std::uint64_t>(count);
    }
    return 0;
}

// A read of a page that goes on while its session does something else: tells the device of a
// victim, or makes room for the page. By io_uring, with a ring of the session's own; where the
// kernel refuses one nothing is ever begun, and read_whole() reads as it does otherwise.

// A session's own. The thread that has begun a read ends it in the same call, whatever else fails:
// until then the disk writes to its memory.
class begun_read {
public:
    begun_read() = default;
    begun_read(const begun_read&) = delete;
    begun_read& operator=(const begun_read&) = delete;
    ~begun_read() { end(); }

    // False: not begun. Nothing else is under way.
    bool begin(host::environment& env, int fd, std::byte* to, std::uint64_t bytes,
               std::uint64_t offset) {
        if (bytes > UINT32_MAX || !has_ring(env)) return false;
        ring_->start(
            {.fd = fd, .to = to, .bytes = static_cast<std::uint32_t>(bytes), .offset = offset});
        ring_->submit();
        ended_.clear();
        under_way_ = true;
        return true;
    }
    // Whether end() need not wait for one that was begun.
    bool has_ended() {
        if (under_way_ && ended_.empty()) ring_->reap(ended_, 0);
        return !ended_.empty();
    }
    // In a child of fork(): the ring is the parent's, and so is what was begun.
    void abandon() {
        static_cast<void>(ring_.release());
        under_way_ = false;
    }
    // Waits for it, as read() would for the disk. Bytes, or a negative errno; -EAGAIN: none was
    // begun.
    std::int64_t end() {
        if (!under_way_) return -EAGAIN;
        while (ended_.empty()) ring_->reap(ended_, longest_wait_ns);
        under_way_ = false;
        return ended_.front().result;
    }

private:
    // Then the ring is looked at again.
    static constexpr std::uint64_t longest_wait_ns = 100'000'000;

    bool has_ring(host::environment& env) {
        if (ring_ == nullptr && !refused_) {
            std::string why;
            ring_ = env.make_io_engine(true, 1, why);
            refused_ = ring_ == nullptr;
        }
        return !refused_;
    }

    std::unique_ptr<host::io_engine> ring_;
    std::vector<host::read_result> ended_;
    bool refused_ = false, under_way_ = false;
};

// Whether those of a file may be, through this descriptor. What the page cache has is read sooner
// than begun; and without a device there is nothing to do meanwhile.
inline bool begins_reads(const manager_settings& settings, int fd) {
    if (settings.device_pages == 0 || settings.begins == begun_reads::none) return false;
    const int flags = ::fcntl(fd, F_GETFL);
    return settings.begins == begun_reads::all || (flags >= 0 && (flags & O_DIRECT) != 0);
}

// read_whole() of what may have been begun. Where that brought less, or failed, all is asked for
// again: it says why, or the disk has thought better of it.
inline int end_whole(begun_read& begun, host::environment& env, int fd, std::byte* to,
                     std::uint64_t bytes, std::uint64_t room, std::uint64_t offset) {
    const std::int64_t there = begun.end();
    return there >= 0 && static_cast<std::uint64_t>(there) >= bytes
               ? 0
               : read_whole(env, fd, to, bytes, room, offset);
}

}  // namespace penstock::buffer
