// The first exchange of a session with the kernel: it says what it can, and the mount answers what
// it wants of that.
//
// libfuse makes the answer. Two agreements it does not know before 3.17, so they are put into its
// answer on the way: while libfuse answers, a socket stands in the place of the device, and what it
// wrote there goes to the device with the agreements added. Later requests and answers do not pass
// here, and cost nothing more.
#pragma once

#include <fuse_lowlevel.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "penstock/error.hpp"

namespace penstock::mount {

// Files that the kernel keeps no pages of, and that programs can map all the same.
//
// A file that is opened for direct access (FOPEN_DIRECT_IO) is read and written past the kernel's
// cache: what a program asks for comes to the mount, each time, and nothing of it is kept. Only
// pages that a program maps are. But a shared mapping of such a file is refused (ENODEV), unless
// the two sides have agreed on it, which kernels from 6.6 on do.
struct uncached_agreement {
    bool wanted = false;
    bool reached = false;  // files may be opened so
};

// Files that the kernel reads and writes itself (pass_through.hpp), from 6.9 on.
struct passing_agreement {
    bool wanted = false;
    bool reached = false;
    // How many file systems the kernel may find on one another in the source: 1, or 2 if the source
    // itself lies on another. A mount with 2 cannot be a layer of overlayfs.
    std::uint32_t layers = 1;
};

struct agreements {
    uncached_agreement uncached;
    passing_agreement passing;
    // How many requests that no call waits for (reads ahead, closes) the kernel sends before it has
    // answers. Reads by way of its pages are among these.
    std::uint32_t background_requests = 0;
};

// Answers the kernel's first request, which is there as soon as `session` is mounted. Once, before
// the session is served. What is wanted and cannot be is not reached, which is no error.
status exchange_first(fuse_session* session, agreements& both);

}  // namespace penstock::mount
