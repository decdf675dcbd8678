#include "byte_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.hpp"
#include "penstock/runtime.hpp"

namespace penstock::trace {

byte_source::~byte_source() {
    if (fd_ >= 0) ::close(fd_);
}

status byte_source::open(const std::string& path, const std::string& what, std::size_t piece_bytes, std::size_t kept_bytes) {
    path_ = path;
    if (fd_ >= 0) ::close(fd_);
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    int code = fd_ < 0 || ::fstat(fd_, &facts) != 0 ? -errno : 0;
    if (code == 0 && S_ISDIR(facts.st_mode)) code = -EISDIR;
    if (code != 0) return {code, apps::shown(path) + ": " + error_text(code) + "; name a " + what + " that can be read"};
    static_cast<void>(::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL));  // only advice; a pipe takes none
    piece_bytes_ = std::max<std::size_t>(piece_bytes, 1);
    buffer_.resize(piece_bytes_ + kept_bytes);
    begin_ = end_ = buffer_.data();
    at_end_ = saw_nul_ = false;
    return {};
}

status byte_source::more() {
    const std::size_t kept = size();
    if (kept > 0) std::memmove(buffer_.data(), begin_, kept);
    begin_ = buffer_.data();
    end_ = buffer_.data() + kept;
    saw_nul_ = false;
    while (!at_end_) {
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        const ssize_t got = ::read(fd_, end_, std::min(piece_bytes_, buffer_.size() - kept));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return {-errno, apps::shown(path_) + ": " + error_text(-errno) + "; name a file that can be read"};
        at_end_ = got == 0;
        saw_nul_ = std::memchr(end_, 0, static_cast<std::size_t>(got)) != nullptr;
        end_ += got;
        break;
    }
    return {};
}

status byte_source::reach(std::size_t bytes) {
    while (size() < bytes && !at_end_)
        if (status s = more(); !s) return s;
    return {};
}

}  // namespace penstock::trace
