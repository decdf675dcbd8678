// Acting for the program that asked, where that matters: what is made belongs to it.
//
// Whether it may is the kernel's question (default_permissions), answered before we are asked. So we keep the right to pass over permissions and only
// take the caller's user and group, of this thread alone. Where we are not root there is one user only, and just the umask is taken.
//
// The umask comes with the request, because the kernel leaves it to the source's file system: below a folder with a default
// list it does not count (FUSE_CAP_DONT_MASK).
#pragma once

#include <sys/types.h>

#include "mount/fuse_api.hpp"

namespace penstock::mount {

// Is the program that asked in this group? False also where that cannot be told.
bool is_caller_in_group(fuse_req_t request, gid_t group);

class as_caller {
public:
    explicit as_caller(fuse_req_t request);
    ~as_caller();
    as_caller(const as_caller&) = delete;
    as_caller& operator=(const as_caller&) = delete;

    // What to give as the mode of a new file, folder or node.
    [[nodiscard]] mode_t mode_of(mode_t wanted) const { return has_mask_ ? wanted : wanted & ~mask_; }

private:
    bool changed_ = false;
    bool has_mask_ = false;  // this thread has the caller's umask in force
    mode_t mask_ = 0;
};

}  // namespace penstock::mount
