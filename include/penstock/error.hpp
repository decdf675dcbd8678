// The one error model: a byte count or 0, or a negative errno, the same on GPU, ring and host.
//
//   -EBADF      not a descriptor of this runtime, or already closed
//   -EINVAL     negative offset, null buffer, range that overflows, mapping that is not mapped
//   -EFAULT     a null path, a null pointer for a result, or memory that the device does not reach
//   -EROFS      a file is to be changed, and the runtime (options::writable) or its file system
//               only reads
//   -EACCES     the name lies outside the roots, or the file may not be read
//   -EDEADLK    the file is one of a mount that this process serves: name it in the source folder
//   -EISDIR     a directory where a file is meant
//   -EOPNOTSUPP neither file nor directory (a device, a pipe), or a file whose size is not what
//               reads deliver, as in /proc and /sys; the log names such a file and the cure
//   -ENOENT, -ELOOP, -ENOTDIR, -ENAMETOOLONG, -EIO ...  as the file system said
//   -EUNATCH    /proc is not mounted, through which files are opened
//   -ESTALE     another program cut the file, or replaced it, after it was opened: reopen it
//   -ENFILE     every file slot is open
//   -ERANGE     an element outside its view
//   -ENOMEM     no room for the page table of another file
//   -ENOBUFS    every frame of the cache is pinned or loading, and stayed so for the frame wait
//   -ENOSPC ... of a read or write too: every frame is pinned, loading, or holds bytes that a file
//               system does not take for this reason; the log and runtime::write_status() name
//               file and disk
//   -EAGAIN     the request ring stayed full for the request time-out; of launch, a thousand
//               launches are under way
//   -ETIMEDOUT  the host did not answer a request in time, or its heartbeat stopped
//   -ECANCELED  the runtime was interrupted (Ctrl-C) or is shutting down
//   -ESHUTDOWN  a service thread died
//   -ECHILD     the runtime, region or pool belongs to the parent of this process
//   -ENODEV     the program reset the device (cudaDeviceReset) while the runtime lived
//   -EBADMSG    of a table's layout: the file is damaged, or not of the format that it is taken for
//   -EBUSY      the stream is being captured, or it is the legacy stream and another one is; of a
//               mount: mounted already; of a buffer_pool: it has the file open, or the session has
//               too many pages fixed
//   -ETXTBSY    the file is in use in a way that excludes this: a program that runs is written, or
//               of a region or pieces, its server says that the file is busy
//   -ENODATA    of pieces of a file: not expected, so a kernel must not touch them; of a table's
//               layout: no rows, or rows of no bytes
//   -EEXIST     of an open with open_exclusive: the file is there
//   -EFBIG      the file cannot grow so far (docs/guide/writing.md), or not by the limit of the
//               process
//   -EMFILE     of a region: 8 regions share the file; of a buffer_pool: it has max_files open;
//               else the process or the machine has as many files open as it may
//   -ENOTEMPTY, -ENOSYS  of mount_directory: the mount point has files; no libfuse in the build
#pragma once

#include "penstock/base/language.hpp"

#include <cerrno>
#include <cstdint>
#include <string>

namespace penstock {

// Text for a negative errno returned by any Penstock call, for instance "No such file or directory
// (ENOENT)". Host only, thread-safe, does not block.
std::string error_text(std::int64_t negative_errno);

// The result of a host call that can fail with a reason worth reading. `code` is 0 or a negative
// errno; `message` names the cause and the cure. No exceptions cross the library's border.
struct status {
    int code = 0;
    std::string message;

    [[nodiscard]] bool ok() const { return code == 0; }
    explicit operator bool() const { return ok(); }
};

}  // namespace penstock
