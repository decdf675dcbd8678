// Signals that end a system call with EINTR: what opens and asks for names goes on.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

#include "os/patient_open.hpp"
#include "os/regular_file.hpp"
#include "unit/support.hpp"

namespace {

std::atomic<int> opens_to_end{0}, looks_to_end{0};

bool ends(std::atomic<int>& left) {
    if (left <= 0) return false;
    --left;
    errno = EINTR;
    return true;
}

}  // namespace

// In place of the C library's, as a network file system behaves that a signal interrupts.
extern "C" int openat(int start, const char* path, int flags, ...) {
    using function = int (*)(int, const char*, int, ...);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "openat"));
    std::va_list rest;
    va_start(rest, flags);
    const unsigned mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, unsigned) : 0;
    va_end(rest);
    return ends(opens_to_end) ? -1 : real(start, path, flags, mode);
}

extern "C" int stat(const char* path, struct stat* out) {
    using function = int (*)(const char*, struct stat*);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "stat"));
    return ends(looks_to_end) ? -1 : real(path, out);
}

namespace penstock::test {

TEST(interrupted_open, past_leases_goes_on) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    opens_to_end = 1;
    const int fd = host::open_past_leases(folder / "data", O_RDONLY);
    EXPECT_GE(fd, 0) << error_text(-errno);
    EXPECT_EQ(opens_to_end, 0) << "the open did not go by this function";
    ::close(fd);
}

TEST(interrupted_open, of_a_regular_file_goes_on) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    opens_to_end = looks_to_end = 2;
    host::regular_file file;
    const status s = file.open(folder / "data");
    EXPECT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(looks_to_end, 0) << "the look did not go by this function";
    looks_to_end = 1;
    EXPECT_TRUE(host::is_there(folder / "data"));
    looks_to_end = 1;
    EXPECT_TRUE(host::is_folder(folder.path()));
    opens_to_end = looks_to_end = 0;
}

}  // namespace penstock::test
