#include "mount/caller.hpp"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock::mount {

namespace {

// The kernel's calls change this thread only; the library's would change all.
void take(unsigned user, unsigned group) {
    ::syscall(SYS_setfsgid, group);
    ::syscall(SYS_setfsuid, user);
}

// Taking another user clears these from what is in force, and leaves them permitted.
void keep_file_rights() {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &head, data) != 0) return;
    constexpr unsigned kept = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH | 1u << CAP_FOWNER | 1u << CAP_MKNOD;
    data[0].effective |= data[0].permitted & kept;
    ::syscall(SYS_capset, &head, data);
}

}  // namespace

as_caller::as_caller(fuse_req_t request) {
    const fuse_ctx* const who = fuse_req_ctx(request);
    if (::geteuid() != 0 || (who->uid == 0 && who->gid == 0)) return;
    take(who->uid, who->gid);
    if (who->uid != 0) keep_file_rights();
    changed_ = true;
}

as_caller::~as_caller() {
    if (changed_) take(0, 0);  // being root again puts the rights in force again
}

}  // namespace penstock::mount
