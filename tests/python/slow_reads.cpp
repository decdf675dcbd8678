// Preloaded: reads of files wait as long as the file that SLOW_READS names is there, at most 40
// seconds. For calls of Python that wait for a disk.
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

// False: a signal came, which ends the read as it does on file systems of FUSE and of networks.
bool wait_while_slow() {
    const char* const name = std::getenv("SLOW_READS");
    for (int i = 0; i < 4000 && name != nullptr && access(name, F_OK) == 0; ++i)
        if (usleep(10000) != 0) return false;
    return true;
}

template <typename Call>
Call next(const char* name) {
    return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define PENSTOCK_SLOW(name, parameters, arguments)                   \
    extern "C" ssize_t name parameters {                             \
        static const auto call = next<ssize_t(*) parameters>(#name); \
        if (!wait_while_slow()) return errno = EINTR, -1;            \
        return call arguments;                                       \
    }

PENSTOCK_SLOW(pread, (int fd, void* to, size_t bytes, off_t at), (fd, to, bytes, at))
PENSTOCK_SLOW(pread64, (int fd, void* to, size_t bytes, off64_t at), (fd, to, bytes, at))
PENSTOCK_SLOW(preadv, (int fd, const iovec* to, int count, off_t at), (fd, to, count, at))
PENSTOCK_SLOW(preadv64, (int fd, const iovec* to, int count, off64_t at), (fd, to, count, at))
PENSTOCK_SLOW(preadv2, (int fd, const iovec* to, int count, off_t at, int flags),
              (fd, to, count, at, flags))
PENSTOCK_SLOW(preadv64v2, (int fd, const iovec* to, int count, off64_t at, int flags),
              (fd, to, count, at, flags))
