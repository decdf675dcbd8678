#include "common/whole_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/message.hpp"

namespace penstock::apps {

status read_exactly(const std::string& path, int fd, void* to, std::uint64_t bytes,
                    std::uint64_t offset) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t got = ::pread(fd, static_cast<char*>(to) + done, bytes - done,
                                    static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            const int code = got < 0 ? -errno : -ESTALE;
            return {code, shown(path) + ": " +
                              (got < 0 ? error_text(code)
                                       : "became shorter while it was read; "
                                         "run again when no program writes to it")};
        }
        done += static_cast<std::uint64_t>(got);
    }
    return {};
}

status write_exactly(const std::string& path, int fd, const void* from, std::uint64_t bytes,
                     std::uint64_t offset) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t put = ::pwrite(fd, static_cast<const char*>(from) + done, bytes - done,
                                     static_cast<off_t>(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            const int code = put < 0 ? -errno : -EIO;
            return {code, "output file " + shown(path) + ": " + error_text(code) + "; " +
                              cure_for(code, "make room or give another name")};
        }
        done += static_cast<std::uint64_t>(put);
    }
    return {};
}

mapped_file::~mapped_file() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

status mapped_file::open(const std::string& path, std::uint64_t bytes) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return {-errno, shown(path) + ": " + error_text(-errno) + "; name a file that can be read"};
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int code = at == MAP_FAILED ? -errno : 0;
    ::close(fd);
    if (code != 0)
        return {code, shown(path) + ": " + error_text(code) +
                          " while mapping it; free some address space"};
    data_ = static_cast<char*>(at);
    bytes_ = bytes;
    return {};
}

}  // namespace penstock::apps
