// What is agreed with the kernel about its page cache: how far it reads ahead, and that files may
// be used past it.
#pragma once

#include <fuse_lowlevel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

namespace penstock::mount {

// How far the kernel reads ahead for programs that read a file of the mount in order.
//
// Each request is 1 MiB at most, and is answered by a thread; with few processors more than one at
// a time is no gain.
inline std::uint64_t usual_read_ahead(unsigned processors) {
    return std::clamp<std::uint64_t>(processors * (256ull << 10), 1u << 20, 4u << 20);
}

// Up to so much, of the mount at `point`, which has no links in it, and which is not asked, since
// it is not served yet. The kernel allows a new mount 128 KiB; a user that may not write to /sys,
// which takes root, leaves it so.
void allow_read_ahead(const std::string& point, std::uint64_t bytes);

// Files of a mount that the kernel keeps no pages of, and that programs can map all the same.
//
// A file that is opened for direct access (FOPEN_DIRECT_IO) is read and written past the kernel's
// cache: what a program asks for comes to the mount, each time, and nothing of it is kept. Only
// pages that a program maps are. But a shared mapping of such a file is refused (ENODEV), unless
// the two sides have agreed on it at the start of the session, which kernels from 6.6 on do.
// libfuse before 3.17 knows nothing of that, so there the agreement is put into its first answer on
// the way.

// The agreement of a session with the kernel: wanted, and reached. Made before the session.
struct uncached_agreement {
    bool wanted = false;
    // Files may be opened so; set before any other request is answered.
    std::atomic<bool> reached{false};
    std::uint64_t first = 0;  // number of the request that begins the session
};

// The agreement in the hands of libfuse, or in its answer. `session` is mounted and not served yet,
// and has a tree as its user data.
void seek_agreement(fuse_session* session, uncached_agreement& both);
// When the kernel says what it can (fuse_lowlevel_ops::init).
void agree_uncached(fuse_conn_info* kernel, uncached_agreement& both);

}  // namespace penstock::mount
