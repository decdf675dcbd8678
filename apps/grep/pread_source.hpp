// Reading pieces of files with pread, for the methods that do without Penstock.
#pragma once

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
#include "count_job.hpp"

namespace penstock::grep {

// An open file of a known size; code is 0 or why it is not that.
class plain_file {
public:
    plain_file(const char* path, std::uint64_t expected_bytes)
        : fd_(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
        struct stat info {};
        if (fd_ < 0 || ::fstat(fd_, &info) != 0) code_ = -errno;
        else if (static_cast<std::uint64_t>(info.st_size) != expected_bytes) code_ = -ESTALE;
    }

    [[nodiscard]] int code() const { return code_; }

    // All of it or a negative errno.
    [[nodiscard]] int read(unsigned char* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_all(fd_, to, bytes, offset);
    }

private:
    apps::unique_fd fd_;
    int code_ = 0;
};

// Text source (count_job.hpp) for one thread.
struct pread_source {
    const plain_file& file;
    std::uint64_t file_bytes;
    unsigned char* copy;
    std::uint64_t copy_bytes;

    template <typename Group, typename Body>
    int for_each_window(const Group&, std::uint64_t from, std::uint64_t to,
                        const Body& body) const {
        for (std::uint64_t at = from; at < to;) {
            const std::uint64_t before = at > 0 ? at - 1 : 0;
            const std::uint64_t room = copy_bytes - window_margin - 1;
            const std::uint64_t until = to - at < room ? to : at + room;
            const std::uint64_t end =
                file_bytes - until > window_margin ? until + window_margin : file_bytes;
            if (const int code = file.read(copy, end - before, before); code != 0) return code;
            body(text_window{copy, before, end}, at, until);
            at = until;
        }
        return 0;
    }
};

}  // namespace penstock::grep
