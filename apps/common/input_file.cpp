#include "common/input_file.hpp"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "common/message.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

namespace {

constexpr auto longest_wait_for_writer = std::chrono::seconds(2);
constexpr int between_looks_ms = 50;

}  // namespace

status look_at_input(const std::string& path, const std::string& cure, struct stat& facts) {
    host::file_kind kind = host::file_kind::regular;
    const int code = host::look_at_file(path, facts, kind);
    if (code != 0)
        return {code, shown(path) + ": " + error_text(code) + "; " + cure_for(code, cure)};
    if (kind == host::file_kind::regular) return {};
    if (kind == host::file_kind::directory)
        return {-EISDIR, shown(path) + ": " + error_text(-EISDIR) + "; " + cure};
    return {-EOPNOTSUPP, shown(path) + ": " + host::why_not_by_size(kind)};
}

std::string about_stream(int code, const std::string& cure) {
    if (code != -ENXIO) return error_text(code) + "; " + cure_for(code, cure);
    return "no program writes to this pipe; start that program first, or name a file";
}

input_stream::~input_stream() {
    if (fd_ >= 0) ::close(fd_);
}

// O_NONBLOCK: the open of a pipe does not wait for its writer, and that of a device not for its
// other end.
int input_stream::open(const std::string& path) {
    if (fd_ >= 0) ::close(fd_);
    had_writer_ = false;
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat facts {};
    if (fd_ < 0 || ::fstat(fd_, &facts) != 0) return -errno;
    is_pipe_ = S_ISFIFO(facts.st_mode);
    return S_ISDIR(facts.st_mode) ? -EISDIR : 0;
}

// A read of a pipe that had no writer yet gives 0, as at its end, but poll() tells the two apart:
// only after a writer has left is it ready. With a writer a read gives EAGAIN until there are
// bytes.
ssize_t input_stream::read(void* to, std::size_t most) {
    const auto deadline = std::chrono::steady_clock::now() + longest_wait_for_writer;
    for (;;) {
        if (was_interrupted()) return -ECANCELED;
        pollfd one{fd_, POLLIN, 0};
        const bool ready = ::poll(&one, 1, between_looks_ms) > 0;
        const ssize_t got = ::read(fd_, to, most);
        if (got > 0) had_writer_ = true;
        if (got > 0 || (got == 0 && (!is_pipe_ || had_writer_ || ready))) return got;
        if (got < 0 && errno == EAGAIN) had_writer_ = had_writer_ || is_pipe_;
        else if (got < 0 && errno != EINTR) return -errno;
        if (got == 0 && std::chrono::steady_clock::now() > deadline) return -ENXIO;
    }
}

}  // namespace penstock::apps
