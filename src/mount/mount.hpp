// A directory served at another place through FUSE, so that programs that know nothing of Penstock use its files there: every operation of files and
// directories goes through to the source.
//
// Programs see at the mount point what they would see in the source, with its owners, permissions, times, links, holes and extended attributes; what is made
// belongs to who made it. Locks hold among the programs that use the mount. What others change in the source itself is seen when a file is opened, and names and
// attributes after a second at most. Access control lists are not passed on.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/error.hpp"

namespace penstock::mount {

struct mount_options {
    std::string source, point;
    bool read_only = false;
    bool allow_other = false;      // other users too; who is not root needs user_allow_other in /etc/fuse.conf
    std::uint32_t threads = 0;     // that serve requests; 0: one for each processor, at least 4
    bool background = false;       // returns to the shell once the mount is there; the process goes on
};

struct mount_report {
    std::uint64_t requests = 0, errors = 0, reads = 0, bytes_asked = 0, writes = 0, bytes_written = 0;
};

// Is this built with libfuse, and may this process use it? Else why not.
status can_mount();

// Are source and mount point what they must be? Nothing is changed. The message names the path and the cure.
status check(const mount_options& wanted);

// Serves until the mount is taken away (fusermount3 -u, umount) or the process gets SIGINT, SIGTERM or SIGHUP; then it is unmounted, and what was done is in
// `done`. `ready` is called when it is there. Not thread-safe: one at a time in a process. Raises the process's limit on open files and clears its umask.
status serve(const mount_options& wanted, void (*ready)(const mount_options&), mount_report& done);

}  // namespace penstock::mount
