#include "mount/caller.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

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

// A umask belongs to all threads that share a current directory, so a thread that makes files leaves that company first.
bool has_own_mask() {
    thread_local const bool own = ::unshare(CLONE_FS) == 0;
    return own;
}

}  // namespace

bool is_caller_in_group(fuse_req_t request, gid_t group) {
    if (fuse_req_ctx(request)->gid == group) return true;
    const int count = fuse_req_getgroups(request, 0, nullptr);
    if (count <= 0) return false;
    std::vector<gid_t> groups(static_cast<std::size_t>(count));
    const int got = fuse_req_getgroups(request, count, groups.data());
    return got > 0 && std::find(groups.begin(), groups.begin() + std::min(got, count), group) != groups.begin() + std::min(got, count);
}

as_caller::as_caller(fuse_req_t request) : has_mask_(has_own_mask()), mask_(fuse_req_ctx(request)->umask & 0777) {
    const fuse_ctx* const who = fuse_req_ctx(request);
    if (has_mask_) ::umask(mask_);
    if (::geteuid() != 0 || (who->uid == 0 && who->gid == 0)) return;
    take(who->uid, who->gid);
    if (who->uid != 0) keep_file_rights();
    changed_ = true;
}

as_caller::~as_caller() {
    if (changed_) take(0, 0);  // being root again puts the rights in force again
    if (has_mask_) ::umask(0);
}

}  // namespace penstock::mount
