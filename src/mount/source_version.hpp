// Which version of a file of the source an open finds, and whether it is known by its times.
#pragma once

#include <sys/stat.h>

#include "mount/tree.hpp"

namespace penstock::mount {

struct source_version {
    host::file_identity identity;
    // Bytes that are read from now on are of this version as long as later looks give the same.
    // Always so on a local file system, but for changes within one tick of its times; elsewhere by
    // the table of network file systems (os/file_system.hpp), so never through FUSE.
    bool is_proof = false;
    bool is_regular = false;
    bool has_false_size = false;  // host::file_kind
};

// After an open: `fd` has the file open, since some servers look for changes only then. Asks the
// server of a network file system, past the attributes that the kernel keeps. A local file system
// costs one system call, and one or two more for a file that claims to occupy no blocks
// (host::kind_of) if `judges_size` says so. 0 or a negative errno.
int look_at_source(const node& file_node, int fd, bool judges_size, source_version& out);

}  // namespace penstock::mount
