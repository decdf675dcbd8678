#include "byte_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

#include "common/message.hpp"

namespace penstock::trace {

status byte_source::open(const std::string& path, const std::string& what, std::size_t piece_bytes,
                         std::size_t kept_bytes) {
    path_ = path;
    if (const int code = from_.open(path); code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) + "; name a " + what +
                          " that can be read"};
    static_cast<void>(::posix_fadvise(from_.fd(), 0, 0,
                                      POSIX_FADV_SEQUENTIAL));  // only advice; a pipe takes none
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
    if (at_end_) return {};
    const ssize_t got = from_.read(end_, std::min(piece_bytes_, buffer_.size() - kept));
    if (got == -ECANCELED) return {-ECANCELED, "interrupted; nothing was written"};
    const auto code = static_cast<int>(got);
    if (code < 0)
        return {code, apps::shown(path_) + ": " +
                          apps::about_stream(code, "name a file that can be read")};
    at_end_ = got == 0;
    saw_nul_ = std::memchr(end_, 0, static_cast<std::size_t>(got)) != nullptr;
    end_ += got;
    return {};
}

status byte_source::reach(std::size_t bytes) {
    while (size() < bytes && !at_end_)
        if (status s = more(); !s) return s;
    return {};
}

}  // namespace penstock::trace
