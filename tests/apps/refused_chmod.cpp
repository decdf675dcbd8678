// Preloaded: file systems that have no permissions of their own (FAT, some of networks) refuse to
// set a file's. So it is for all files below the folder that REFUSED_CHMOD names.
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" int fchmod(int fd, mode_t mode) noexcept {
    const char* const folder = std::getenv("REFUSED_CHMOD");
    char link[64], path[PATH_MAX];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    const std::size_t wanted = folder != nullptr ? std::strlen(folder) : PATH_MAX;
    if (length <= static_cast<ssize_t>(wanted) || std::memcmp(path, folder, wanted) != 0)
        return static_cast<int>(syscall(SYS_fchmod, fd, mode));
    errno = EPERM;
    return -1;
}
