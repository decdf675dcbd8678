// Opens of files that any program may have a lease on.
#pragma once

#include <cerrno>
#include <string>

namespace penstock::host {

// The negative errno of an open. A full table of the machine's files is told as one of the
// process's: -ENFILE is the library's word for its own file slots.
inline int code_of_open(int error) { return error == ENFILE ? -EMFILE : -error; }

// As openat(2) with O_NONBLOCK and O_CLOEXEC: waits for no pipe and no device. But where a lease on
// a regular file stands in the way it waits until its holder gives it back: runtimes hold one while
// they ask for writers and while a file's pages are lent to windows, and with O_NONBLOCK the kernel
// fails an open in that moment. It wants the lease back from its holder and takes it after
// /proc/sys/fs/lease-break-time (45 s).
//
// A descriptor, or -1 with errno: ECANCELED where a signal came meanwhile that asks for the
// program's end (interrupt_on_signals), EMFILE as above, EUNATCH where the wait needs /proc, which
// is not mounted. `mode` is for O_CREAT.
int open_past_leases(int start, const char* path, int flags, unsigned mode = 0);
int open_past_leases(const std::string& path, int flags, unsigned mode = 0);

}  // namespace penstock::host
