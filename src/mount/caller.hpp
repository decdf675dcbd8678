// Acting for the program that asked, where that matters: what is made belongs to it.
//
// Whether it may is the kernel's question (default_permissions), answered before we are asked. So we keep the right to pass over permissions and only
// take the caller's user and group, of this thread alone. Where we are not root there is one user only, and just the umask is taken.
//
// The umask comes with the request, because the kernel leaves it to the source's file system: below a folder with a default
// list it does not count (FUSE_CAP_DONT_MASK).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

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

// This thread has the rights of one user and no other, as if that user had called the source itself. For files that judge
// by more than their mode who reads them (/proc). Does nothing where we are not root, and for root.
class as_user {
public:
    explicit as_user(fuse_req_t request);  // the caller
    as_user();                             // nobody in particular
    ~as_user();
    as_user(const as_user&) = delete;
    as_user& operator=(const as_user&) = delete;

    // False: the rights could not be given up, so nothing may be done.
    [[nodiscard]] bool is_so() const { return is_so_; }

private:
    void take(uid_t user, gid_t group, const std::vector<gid_t>& groups);

    std::vector<gid_t> own_groups_;
    std::uint64_t own_rights_ = 0;  // capabilities in force
    bool changed_ = false, is_so_ = true;
};

}  // namespace penstock::mount
