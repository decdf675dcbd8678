// Acting for the program that asked, where that matters: what is made belongs to it.
//
// Whether it may is the kernel's question (default_permissions), answered before we are asked. So we keep the right to pass over permissions and only
// take the caller's user and group, of this thread alone. Does nothing where we are not root, since then there is one user only.
#pragma once

#include "mount/fuse_api.hpp"

namespace penstock::mount {

class as_caller {
public:
    explicit as_caller(fuse_req_t request);
    ~as_caller();
    as_caller(const as_caller&) = delete;
    as_caller& operator=(const as_caller&) = delete;

private:
    bool changed_ = false;
};

}  // namespace penstock::mount
