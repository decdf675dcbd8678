#include "os/patient_open.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>

#include "os/came_signal.hpp"
#include "os/file_system.hpp"
#include "os/shared_memory.hpp"

namespace penstock::host {

namespace {

// The file is found first and then opened by its descriptor, so what takes its name meanwhile is
// not waited for. The file is there, so it is not made, and a link to it is followed already. After
// a signal that asks for the program's end the wait is over; after others it goes on.
int open_waiting(int start, const char* path, int flags, unsigned mode) {
    const int fd = open_past_signals(
        [&] { return ::openat(start, path, flags | O_NONBLOCK | O_CLOEXEC, mode); });
    if (fd >= 0 || errno != EWOULDBLOCK) return fd;
    const owned_fd found(open_past_signals(
        [&] { return ::openat(start, path, O_PATH | O_CLOEXEC | (flags & O_NOFOLLOW)); }));
    if (!found) return -1;
    struct stat facts {};
    if (::fstat(found.get(), &facts) != 0) return -1;
    if (!S_ISREG(facts.st_mode)) {
        errno = EWOULDBLOCK;
        return -1;
    }
    const std::string name = path_of_descriptor(found.get());
    const int waiting = (flags & ~(O_NONBLOCK | O_CREAT | O_EXCL | O_NOFOLLOW)) | O_CLOEXEC;
    const int opened = open_past_signals([&] { return ::open(name.c_str(), waiting); });
    if (opened < 0 && errno == ENOENT && !is_proc_there()) errno = EUNATCH;
    return opened;
}

}  // namespace

int open_past_leases(int start, const char* path, int flags, unsigned mode) {
    const int fd = open_waiting(start, path, flags, mode);
    if (fd < 0) errno = -code_of_open(errno);
    return fd;
}

int open_past_leases(const std::string& path, int flags, unsigned mode) {
    return open_past_leases(AT_FDCWD, path.c_str(), flags, mode);
}

}  // namespace penstock::host
