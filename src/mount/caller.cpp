#include "mount/caller.hpp"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "os/file_kind.hpp"

namespace penstock::mount {

namespace {

// The kernel's calls change this thread only; the library's would change all.
void take(unsigned user, unsigned group) {
    ::syscall(SYS_setfsgid, group);
    ::syscall(SYS_setfsuid, user);
}

// Rights by which a file system grants more than permissions.
constexpr std::uint64_t beyond_limits = std::uint64_t{1} << CAP_SYS_RESOURCE;

// Taking another user clears these from what is in force, and leaves them permitted. Those beyond
// limits it leaves in force.
void keep_file_rights() {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &head, data) != 0) return;
    constexpr unsigned kept =
        1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH | 1u << CAP_FOWNER | 1u << CAP_MKNOD;
    data[0].effective |= data[0].permitted & kept;
    data[0].effective &= ~static_cast<unsigned>(beyond_limits);
    ::syscall(SYS_capset, &head, data);
}

// The caller's supplementary groups; none if the kernel does not tell them.
std::vector<gid_t> groups_of(fuse_req_t request) {
    const int count = fuse_req_getgroups(request, 0, nullptr);
    std::vector<gid_t> out(static_cast<std::size_t>(std::max(count, 0)));
    if (!out.empty())
        out.resize(static_cast<std::size_t>(
            std::clamp(fuse_req_getgroups(request, count, out.data()), 0, count)));
    return out;
}

// Read and set the effective capabilities of this thread.
bool rights_in_force(std::uint64_t& out) {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &head, data) != 0) return false;
    out = data[0].effective | std::uint64_t{data[1].effective} << 32;
    return true;
}
bool put_in_force(std::uint64_t rights) {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    if (::syscall(SYS_capget, &head, data) != 0) return false;
    data[0].effective = static_cast<std::uint32_t>(rights);
    data[1].effective = static_cast<std::uint32_t>(rights >> 32);
    return ::syscall(SYS_capset, &head, data) == 0;
}

// Threads that share a current directory share a umask, so a thread that makes files gets a
// directory of its own first.
bool has_own_mask() {
    thread_local const bool own = ::unshare(CLONE_FS) == 0;
    return own;
}

bool is_there(const std::string& path) {
    return ::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_number(std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of a process the kernel shows these to any user. Links of /proc lead to the first three.
bool is_for_all(std::string_view name) {
    constexpr std::string_view names[] = {"mounts", "mountinfo", "net",   "cgroup",
                                          "status", "cmdline",   "statm", "comm"};
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Does the descriptor lead to a file or link of /proc that shows a reader more because the mount's
// process reads it: what the kernel shows of a process to itself alone, and the keys of its
// session? No rights that a thread gives up change that, since the kernel goes by the process. True
// also where that cannot be told.
//
// The number of a process in any /proc is that of one of its threads there.
bool shows_own_process(int path_fd) {
    std::string path(PATH_MAX, '\0');
    const ssize_t length = ::readlink(path_of(path_fd).c_str(), path.data(), path.size());
    if (length <= 0 || static_cast<std::size_t>(length) == path.size()) return true;
    path.resize(static_cast<std::size_t>(length));
    bool is_own = false;
    for (std::size_t slash = 0; slash != std::string::npos;) {
        const std::size_t next = path.find('/', slash + 1);
        const std::string name = path.substr(slash + 1, next - slash - 1);
        const std::string threads = path.substr(0, slash) + "/self/task";
        if (next == std::string::npos && name == "keys" && is_there(threads)) return true;
        if (is_own && name != "task" && !is_number(name)) return !is_for_all(name);
        is_own = is_own || (is_number(name) && is_there(threads + "/" + name));
        slash = next;
    }
    return is_own;
}

}  // namespace

bool is_caller_in_group(fuse_req_t request, gid_t group) {
    if (fuse_req_ctx(request)->gid == group) return true;
    const std::vector<gid_t> groups = groups_of(request);
    return std::find(groups.begin(), groups.end(), group) != groups.end();
}

bool lent_groups::take(const std::vector<gid_t>& groups) {
    const int count = ::getgroups(0, nullptr);
    own_.resize(static_cast<std::size_t>(std::max(count, 0)));
    changed_ = count >= 0 && ::getgroups(count, own_.data()) == count &&
               ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
    return changed_;
}

void lent_groups::give_back() {
    if (std::exchange(changed_, false)) ::syscall(SYS_setgroups, own_.size(), own_.data());
}

as_caller::as_caller(fuse_req_t request, mode_t mode)
    : has_mask_(has_own_mask()), mask_(fuse_req_ctx(request)->umask & 0777) {
    const fuse_ctx* const context = fuse_req_ctx(request);
    if (has_mask_) ::umask(mask_);
    if (::geteuid() != 0 || (context->uid == 0 && context->gid == 0)) return;
    changed_ = true;
    rights_in_force(own_rights_);
    if (context->uid != 0 && (mode & S_ISGID) != 0) groups_.take(groups_of(request));
    take(context->uid, context->gid);
    if (context->uid != 0) keep_file_rights();
}

as_caller::~as_caller() {
    if (changed_) {
        take(0, ::getegid());
        put_in_force(own_rights_);  // with which the groups are given back
    }
    if (has_mask_) ::umask(0);
}

namespace {

std::string link_at(const std::string& path) {
    char text[64];
    const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
    return {text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

// What another process of this user namespace has in force. None of one that is not known here, or
// whose rights are those over another namespace.
std::uint64_t rights_of(pid_t process) {
    const std::string folder = "/proc/" + std::to_string(process);
    const std::string space = link_at(folder + "/ns/user");
    if (process == 0 || space.empty() || space != link_at("/proc/thread-self/ns/user")) return 0;
    std::ifstream facts(folder + "/status");
    constexpr std::string_view before = "CapEff:\t";
    for (std::string line; std::getline(facts, line);)
        if (line.rfind(before, 0) == 0)
            return std::strtoull(line.c_str() + before.size(), nullptr, 16);
    return 0;
}

// Without root among the three, giving the effective user up would be for ever.
bool may_return() {
    uid_t real = 0, effective = 0, saved = 0;
    return ::getresuid(&real, &effective, &saved) == 0 && (real == 0 || saved == 0);
}

constexpr auto as_it_is = static_cast<unsigned>(-1);

}  // namespace

as_user::as_user(fuse_req_t request) { begin(request, nullptr); }

as_user::as_user(fuse_req_t request, const node& file_node) { begin(request, &file_node); }

as_user::as_user(const node& file_node) {
    if (::geteuid() != 0) return;
    is_so_ = !shows_own_process(file_node.fd);
    if (is_so_) take(other_user, other_user, {}, 0);
}

void as_user::begin(fuse_req_t request, const node* file_node) {
    const fuse_ctx* const context = fuse_req_ctx(request);
    std::uint64_t rights = 0, own = 0;
    if (::geteuid() != 0) return;
    if (context->uid == 0 && rights_in_force(own)) {
        rights = own & rights_of(context->pid);
        if (rights == own) return;
    }
    is_so_ = file_node == nullptr || !shows_own_process(file_node->fd);
    if (is_so_) take(context->uid, context->gid, groups_of(request), rights);
}

// Some files go by the effective user, and those of control groups by that of their opener. Groups
// first: changing them takes a capability that is given up at the end.
void as_user::take(uid_t user, gid_t group, const std::vector<gid_t>& groups,
                   std::uint64_t rights) {
    own_group_ = ::getegid();
    is_so_ = may_return() && rights_in_force(own_rights_) && groups_.take(groups);
    if (!is_so_) return;
    changed_ = true;
    is_so_ = ::syscall(SYS_setresgid, as_it_is, group, as_it_is) == 0 &&
             ::syscall(SYS_setresuid, as_it_is, user, as_it_is) == 0 && put_in_force(rights);
}

// The user first: root has what the rest takes. Both calls set the user and the group for files
// too.
as_user::~as_user() {
    if (!changed_) return;
    ::syscall(SYS_setresuid, as_it_is, 0, as_it_is);
    put_in_force(own_rights_);
    ::syscall(SYS_setresgid, as_it_is, own_group_, as_it_is);
    groups_.give_back();
}

as_ordinary::as_ordinary(fuse_req_t request, sticky_rule rule) {
    constexpr std::uint64_t over_owners = std::uint64_t{1} << CAP_FOWNER;
    if (const uid_t user = fuse_req_ctx(request)->uid; user != 0)
        take(user, beyond_limits | std::uint64_t{1} << CAP_SYS_ADMIN |
                       (rule == sticky_rule::judged_by_source ? over_owners : 0));
}

// With the right to name files to the kernel that it is to pass through.
as_ordinary::as_ordinary(uid_t user) { take(user, beyond_limits); }

void as_ordinary::take(uid_t user, std::uint64_t without) {
    if (::geteuid() != 0 || !rights_in_force(own_rights_)) return;
    ::syscall(SYS_setfsuid, user);  // takes rights over files, which are put back here
    put_in_force(own_rights_ & ~without);
    changed_ = true;
}

as_ordinary::~as_ordinary() {
    if (!changed_) return;
    ::syscall(SYS_setfsuid, 0);
    put_in_force(own_rights_);
}

// Without execute rights for the group its set-group bit stays for users of the group.
bool is_to_take_bits(fuse_req_t request, int fd) {
    struct stat facts {};
    if (fuse_req_ctx(request)->uid == 0 || ::fstat(fd, &facts) != 0) return false;
    if ((facts.st_mode & S_ISUID) != 0) return true;
    return (facts.st_mode & S_ISGID) != 0 &&
           ((facts.st_mode & S_IXGRP) != 0 || !is_caller_in_group(request, facts.st_gid));
}

as_writer::as_writer(fuse_req_t request, int fd) {
    if (is_to_take_bits(request, fd)) caller_.emplace(request, S_ISGID);
    else ordinary_.emplace(request);
}

namespace {

struct open_descriptor {
    explicit open_descriptor(int fd) : number(fd) {}
    ~open_descriptor() {
        if (number >= 0) ::close(number);
    }
    open_descriptor(const open_descriptor&) = delete;
    open_descriptor& operator=(const open_descriptor&) = delete;
    const int number;
};

// Some files have no offsets and give the next bytes at each read.
ssize_t read_as_judged(fuse_req_t request, const fuse_file_info* open, std::vector<char>& text,
                       off_t offset) {
    std::optional<as_user> caller;
    if ((open->fh & judges_reader) != 0) caller.emplace(request);
    if (caller && !caller->is_so()) return -EACCES;
    ssize_t got = ::pread(handle_of(open), text.data(), text.size(), offset);
    if (got < 0 && errno == ESPIPE) got = ::read(handle_of(open), text.data(), text.size());
    return got < 0 ? -errno : got;
}

}  // namespace

bool is_made_up(const node& file_node) { return file_node.lies_on->is_made_up; }

void read_what_comes(fuse_req_t request, const fuse_file_info* open, std::size_t bytes,
                     off_t offset) {
    answer_without_waiting(request, handle_of(open), [request, open = *open, bytes, offset] {
        std::vector<char> text(bytes);
        const ssize_t got = read_as_judged(request, &open, text, offset);
        if (got == -EAGAIN && (open.flags & O_NONBLOCK) == 0) return false;
        if (got < 0) reply(request, static_cast<int>(-got));
        else fuse_reply_buf(request, text.data(), static_cast<std::size_t>(got));
        return true;
    });
}

std::vector<char> public_content_of(const node& file_node) {
    const as_user other(file_node);
    const open_descriptor file(other.is_so() ? ::open(path_of(file_node.fd).c_str(),
                                                      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                                             : -1);
    const int fd = file.number;
    constexpr std::size_t most_bytes = 1u << 20, step = 64u << 10;
    // A file with a poll operation of its own may give its bytes only once (kmsg). All others are
    // always ready for writing.
    pollfd asked{fd, POLLIN | POLLOUT, 0};
    if (::poll(&asked, 1, 0) != 1 || (asked.revents & POLLOUT) == 0) return {};
    std::vector<char> out;
    for (ssize_t got = 1; got > 0;) {
        const std::size_t end = out.size();
        if (end >= most_bytes) return {};
        out.resize(end + step);
        got = ::pread(fd, out.data() + end, step, static_cast<off_t>(end));
        if (got < 0) return {};
        out.resize(end + static_cast<std::size_t>(got));
    }
    return out;
}

}  // namespace penstock::mount
