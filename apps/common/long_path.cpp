#include "common/long_path.hpp"

#include <cerrno>
#include <climits>
#include <fcntl.h>
#include <unistd.h>

namespace penstock::apps {

namespace {

constexpr std::size_t most_at_once = PATH_MAX - 1;

}  // namespace

// Each step goes as far as one call can, from the folder where the step before it ended.
int open_long(const std::string& path, int flags) {
    int from = AT_FDCWD;
    std::size_t at = 0;
    while (path.size() - at > most_at_once) {
        const std::size_t slash = path.rfind('/', at + most_at_once - 1);
        const bool one_name = slash == std::string::npos || slash <= at;
        const int next = one_name ? -1
                                  : ::openat(from, path.substr(at, slash - at).c_str(),
                                             O_PATH | O_DIRECTORY | O_CLOEXEC);
        const int code = one_name ? ENAMETOOLONG : errno;
        if (from != AT_FDCWD) ::close(from);
        if (next < 0) {
            errno = code;
            return -1;
        }
        from = next;
        at = path.find_first_not_of('/', slash);
        if (at == std::string::npos) at = path.size();
    }
    const std::string rest = at == path.size() && at > 0 ? "." : path.substr(at);
    const int fd = ::openat(from, rest.c_str(), flags);
    const int code = errno;
    if (from != AT_FDCWD) ::close(from);
    errno = code;
    return fd;
}

}  // namespace penstock::apps
