// The owner of a descriptor: forwards to its runtime.
#include "penstock/host_file.hpp"

#include <cerrno>
#include <utility>

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
    return {fd, "'" + path + "': " + error_text(fd) +
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

std::int64_t file::read(void* buffer, std::int64_t bytes, std::int64_t offset) const {
    return is_open() ? rt_->read(fd_, buffer, bytes, offset) : -EBADF;
}
std::int64_t file::write(const void* buffer, std::int64_t bytes, std::int64_t offset) const {
    return is_open() ? rt_->write(fd_, buffer, bytes, offset) : -EBADF;
}
std::int64_t file::append(const void* buffer, std::int64_t bytes) const {
    return is_open() ? rt_->append(fd_, buffer, bytes) : -EBADF;
}
int file::stat(file_stat* out) const { return is_open() ? rt_->stat(fd_, out) : -EBADF; }
std::int64_t file::prefetch(std::int64_t offset, std::int64_t bytes) const {
    return is_open() ? rt_->prefetch(fd_, offset, bytes) : -EBADF;
}
std::int64_t file::advise(advice kind, std::int64_t offset, std::int64_t bytes) const {
    return is_open() ? rt_->advise(fd_, kind, offset, bytes) : -EBADF;
}
int file::fsync() const { return is_open() ? rt_->fsync(fd_) : -EBADF; }
int file::truncate(std::int64_t size_bytes) const {
    return is_open() ? rt_->truncate(fd_, size_bytes) : -EBADF;
}

int file::close() {
    if (!is_open()) return -EBADF;
    return std::exchange(rt_, nullptr)->close(std::exchange(fd_, -1));
}

}  // namespace penstock
