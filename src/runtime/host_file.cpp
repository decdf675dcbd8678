// The owner of a descriptor: forwards to its runtime.
#include "penstock/host_file.hpp"

#include <cerrno>
#include <utility>

#include "device/device.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"

namespace penstock {

status file::open(runtime& rt, const std::string& path, int flags, file& out) {
    out = {};
    const int fd = rt.open(path, flags);
    if (fd >= 0) {
        out = file(rt, fd);
        return {};
    }
    const bool only_reads = fd == -EROFS && !rt.settings().writable;
    return {fd, "'" + path + "': " + host::error_and_cure(fd) +
                    (only_reads ? "; the runtime only reads: set options::writable "
                                  "(PENSTOCK_WRITABLE) to change files"
                                : "")};
}

file::~file() { close(); }

file::file(file&& other) noexcept
    : rt_(std::exchange(other.rt_, nullptr)), fd_(std::exchange(other.fd_, -1)) {}

file& file::operator=(file&& other) noexcept {
    if (this != &other) {
        close();
        rt_ = std::exchange(other.rt_, nullptr);
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

// read, write, append, prefetch, advise, stat, fsync, truncate
#define PENSTOCK_ASK_RUNTIME(Result, verb, parameters, names)           \
    Result file::verb parameters const {                                \
        return is_open() ? rt_->verb(fd_ PENSTOCK_REST names) : -EBADF; \
    }
PENSTOCK_FILE_VERBS(PENSTOCK_ASK_RUNTIME)
#undef PENSTOCK_ASK_RUNTIME

int file::close() {
    if (!is_open()) return -EBADF;
    return std::exchange(rt_, nullptr)->close(std::exchange(fd_, -1));
}

}  // namespace penstock
