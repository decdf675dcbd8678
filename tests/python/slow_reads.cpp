// Preloaded: reads of files wait as long as the file that SLOW_READS names is locked. For calls of
// Python that wait for a disk.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

// False: a signal came, which ends the read as it does on file systems of FUSE and of networks. A
// lock is one long wait in the system: a loop of short waits would miss a signal between two.
bool wait_while_slow() {
    const char* const name = std::getenv("SLOW_READS");
    const int fd = name != nullptr ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return true;
    const bool waited = flock(fd, LOCK_SH) == 0;
    close(fd);
    return waited;
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
