// A directory served at another place through FUSE, so that programs that know nothing of Penstock use its files there: every operation of files and
// directories goes through to the source.
//
// Programs see at the mount point what they would see in the source, with its owners, permissions, times, links, holes and extended attributes; what is made
// belongs to who made it. Locks hold among the programs that use the mount. What others change in the source itself is seen when a file is opened, and names and
// attributes after a second at most. Access control lists are not passed on.
#pragma once

#include <string>

#include "penstock/mount.hpp"

namespace penstock::mount {

struct serve_options : mount_options {
    std::string source, point;
    bool background = false;       // returns to the shell once the mount is there; the process goes on
};

// Is this built with libfuse, and may this process use it? Else why not.
status can_mount();

// Are source and mount point what they must be? Nothing is changed. The message names the path and the cure.
status check(const serve_options& wanted);

// Serves until the mount is taken away (fusermount3 -u, umount) or the process gets SIGINT, SIGTERM or SIGHUP; then it is unmounted, and what was done is in
// `done`. `ready` is called when it is there. For a program of one thread: it takes the signals. Raises the process's limit on open files.
status serve(const serve_options& wanted, void (*ready)(const serve_options&), mount_report& done);

}  // namespace penstock::mount
