// Preloaded: what the close of a file does that is open for writing, and lies below the folder that
// FAILING_CLOSE names. It says that there was no room, as file systems of networks do, which write
// as late as that. If CUT_AT_CLOSE names a file, that one is cut to half its length in place of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

bool is_meant(int fd) {
    const char* const folder = std::getenv("FAILING_CLOSE");
    const int flags = folder != nullptr ? fcntl(fd, F_GETFL) : -1;
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return false;
    char link[64], path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    const std::size_t wanted = std::strlen(folder);
    return length > static_cast<ssize_t>(wanted) && std::memcmp(path, folder, wanted) == 0;
}

// 0, or -1 and errno.
int end_of(const char* cut) {
    struct stat facts {};
    if (cut != nullptr) return stat(cut, &facts) == 0 ? truncate(cut, facts.st_size / 2) : -1;
    errno = EDQUOT;
    return -1;
}

}  // namespace

extern "C" int close(int fd) {
    const bool meant = is_meant(fd);
    const auto closed = static_cast<int>(syscall(SYS_close, fd));
    return meant && closed == 0 ? end_of(std::getenv("CUT_AT_CLOSE")) : closed;
}
