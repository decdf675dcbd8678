// Attributes: what stat tells and chmod, chown, truncate and utimens change; extended attributes;
// the file system's sizes.
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <vector>

#include "mount/caller.hpp"
#include "mount/tree.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

namespace {

void reply_attributes(fuse_req_t request, node& file_node) {
    struct stat facts {};
    if (const int code = tree_of(request).nodes.facts_of(file_node, facts); code != 0)
        return reply(request, code);
    fuse_reply_attr(request, &facts, tree_of(request).attribute_seconds);
}

void get_attributes(fuse_req_t request, fuse_ino_t number, fuse_file_info*) {
    reply_attributes(request, begin(request, number));
}

// An owner outside the file's group loses the set-group bit by some changes. Root would keep it.
bool is_to_lose_group_bit(fuse_req_t request, const node& file_node) {
    struct stat facts {};
    return fuse_req_ctx(request)->uid != 0 &&
           ::fstatat(file_node.fd, "", &facts, AT_EMPTY_PATH) == 0 &&
           (facts.st_mode & S_ISGID) != 0 && !is_caller_in_group(request, facts.st_gid);
}

// The kernel has taken the bits that go whatever the owner's groups are. An owner with more rights
// than an owner has (CAP_CHOWN) still changes the file, and keeps the bit.
int change_owner(fuse_req_t request, const node& file_node, const struct stat& to, int which) {
    const uid_t user = which & FUSE_SET_ATTR_UID ? to.st_uid : static_cast<uid_t>(-1);
    const gid_t group = which & FUSE_SET_ATTR_GID ? to.st_gid : static_cast<gid_t>(-1);
    const auto change = [&] {
        return ::fchownat(file_node.fd, "", user, group, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    };
    if (is_to_lose_group_bit(request, file_node)) {
        const as_caller owner(request, S_ISGID);
        const int result = change();
        if (result == 0 || errno != EPERM) return result;
    }
    const as_ordinary owner(request);
    return change();
}

int change_times(const node& file_node, const struct stat& to, int which) {
    timespec times[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}};
    if (which & FUSE_SET_ATTR_ATIME) times[0] = to.st_atim;
    if (which & FUSE_SET_ATTR_MTIME) times[1] = to.st_mtim;
    if (which & FUSE_SET_ATTR_ATIME_NOW) times[0].tv_nsec = UTIME_NOW;
    if (which & FUSE_SET_ATTR_MTIME_NOW) times[1].tv_nsec = UTIME_NOW;
    return ::utimensat(AT_FDCWD, path_of(file_node.fd).c_str(), times, 0);
}

// ftruncate() and opens with O_TRUNC date a file also if its size stays; truncate() leaves that to
// the file system. The kernel does not tell an open from truncate(). The program of an open has the
// file open to write.
int set_size(const node& file_node, const fuse_file_info* open, int fd, bool stays, off_t size) {
    if (open != nullptr) return ::ftruncate(handle_of(open), size);
    if (fd < 0 || (stays && file_node.writers == 0))
        return ::truncate(path_of(file_node.fd).c_str(), size);
    return ::ftruncate(fd, size);
}

// All behind the shorter of the two ends is other than before. -1 with EWOULDBLOCK: a lease on the
// file has to go first. None can be taken while a descriptor writes. Where this process may not
// have one, truncate() says why.
int change_size(fuse_req_t request, node& file_node, const fuse_file_info* open, off_t size) {
    struct stat facts {};
    if (::fstatat(file_node.fd, "", &facts, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) != 0) return -1;
    host::owned_fd writing;
    if (open == nullptr && !is_made_up(file_node)) {
        writing.reset(
            ::open(path_of(file_node.fd).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
        if (!writing && errno == EWOULDBLOCK) return -1;
    }
    const auto first = static_cast<std::uint64_t>(std::min(size, facts.st_size));
    region::program_write access(file_of(request, file_node), region::program_access::kind::direct,
                                 first, UINT64_MAX);
    int result = 0, code = 0;
    {
        std::optional<as_caller> caller;
        if (is_to_take_bits(request, file_node.fd)) caller.emplace(request, S_ISGID);
        result = set_size(file_node, open, writing.get(), size == facts.st_size, size);
        code = errno;
    }
    access.wrote(first, UINT64_MAX);
    tell_buffer(request, file_node, first, UINT64_MAX);
    errno = code;
    return result;
}

// An attempt (answer_without_waiting). What stands before the size may be done again.
bool change_attributes(fuse_req_t request, node& file_node, const struct stat& to, int which,
                       const fuse_file_info* open) {
    const std::string path = path_of(file_node.fd);
    const auto failed = [&](int result) {
        if (result < 0) reply(request, errno);
        return result < 0;
    };
    if (which & FUSE_SET_ATTR_MODE && failed(::chmod(path.c_str(), to.st_mode & 07777)))
        return true;
    if (which & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) &&
        failed(change_owner(request, file_node, to, which)))
        return true;
    if (which & FUSE_SET_ATTR_SIZE) {
        const int result = change_size(request, file_node, open, to.st_size);
        if (result < 0 && errno == EWOULDBLOCK) return false;
        if (failed(result)) return true;
    }
    if (which & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW |
                 FUSE_SET_ATTR_MTIME_NOW) &&
        failed(change_times(file_node, to, which)))
        return true;
    reply_attributes(request, file_node);
    return true;
}

// A page that is written back sets the time of modification, and clears set-id bits where we are
// not root. False for a new size: the kernel writes nothing back while it changes that.
bool is_undone_by_stores(const struct stat& to, int which) {
    if (which & FUSE_SET_ATTR_SIZE) return false;
    return (which & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0 ||
           ((which & FUSE_SET_ATTR_MODE) != 0 && (to.st_mode & (S_ISUID | S_ISGID)) != 0);
}

void set_attributes(fuse_req_t request, fuse_ino_t number, struct stat* to, int which,
                    fuse_file_info* open) {
    node& file_node = begin(request, number);
    if (!is_undone_by_stores(*to, which)) {
        const std::optional<fuse_file_info> of =
            open != nullptr ? std::optional(*open) : std::nullopt;
        return answer_without_waiting(request, -1, [request, &file_node, wanted = *to, which, of] {
            return change_attributes(request, file_node, wanted, which, of ? &*of : nullptr);
        });
    }
    after_stores_to(request, file_node, [request, &file_node, wanted = *to, which] {
        change_attributes(request, file_node, wanted, which, nullptr);
    });
}

// The size alone if no room is given, as the system calls have it.
template <typename Call>
void reply_xattr(fuse_req_t request, std::size_t room, const Call& call) {
    std::vector<char> text(room);
    const ssize_t length = call(room == 0 ? nullptr : text.data(), room);
    if (length < 0) return reply(request, errno);
    if (room == 0) fuse_reply_xattr(request, static_cast<std::size_t>(length));
    else fuse_reply_buf(request, text.data(), static_cast<std::size_t>(length));
}

constexpr std::string_view access_list = "system.posix_acl_access",
                           default_list = "system.posix_acl_default";
bool is_list(std::string_view name) { return name == access_list || name == default_list; }

// A file system without lists answers EOPNOTSUPP. The kernel would take that for the outcome of its
// check, so it is told that the file has no list.
void get_xattr(fuse_req_t request, fuse_ino_t number, const char* name, std::size_t room) {
    const std::string path = path_of(begin(request, number).fd);
    reply_xattr(request, room, [&](char* to, std::size_t bytes) {
        const ssize_t length = ::getxattr(path.c_str(), name, to, bytes);
        if (length < 0 && errno == EOPNOTSUPP && is_list(name)) errno = ENODATA;
        return length;
    });
}

void list_xattr(fuse_req_t request, fuse_ino_t number, std::size_t room) {
    const std::string path = path_of(begin(request, number).fd);
    reply_xattr(request, room, [&](char* to, std::size_t bytes) {
        const as_ordinary reader(request);
        return ::listxattr(path.c_str(), to, bytes);
    });
}

// Among the attributes that a file system interprets (system.*) the kernel checks changes of lists
// only. It leaves the others to the mount, which is not the caller, so they are refused.
bool is_changeable(std::string_view name) { return name.rfind("system.", 0) != 0 || is_list(name); }

void set_xattr(fuse_req_t request, fuse_ino_t number, const char* name, const char* value,
               std::size_t bytes, int flags) {
    const node& file_node = begin(request, number);
    if (!is_changeable(name)) return reply(request, EOPNOTSUPP);
    // The source's file system removes capabilities of a program when its file is written.
    if (std::string_view(name).rfind("security.", 0) == 0)
        return after_stores_to(request, file_node,
                               [request, &file_node, name = std::string(name),
                                value = std::string(value, bytes), flags] {
                                   reply(request,
                                         ::setxattr(path_of(file_node.fd).c_str(), name.c_str(),
                                                    value.data(), value.size(), flags) < 0
                                             ? errno
                                             : 0);
                               });
    int code = 0;
    {
        std::optional<as_caller> caller;
        std::optional<as_ordinary> owner;
        if (name == access_list && is_to_lose_group_bit(request, file_node))
            caller.emplace(request, S_ISGID);
        else owner.emplace(request);
        code = ::setxattr(path_of(file_node.fd).c_str(), name, value, bytes, flags) < 0 ? errno : 0;
    }
    reply(request, code);
}

void remove_xattr(fuse_req_t request, fuse_ino_t number, const char* name) {
    const std::string path = path_of(begin(request, number).fd);
    if (!is_changeable(name)) return reply(request, EOPNOTSUPP);
    reply(request, ::removexattr(path.c_str(), name) < 0 ? errno : 0);
}

void stat_file_system(fuse_req_t request, fuse_ino_t number) {
    struct statvfs facts {};
    if (::fstatvfs(begin(request, number).fd, &facts) != 0) return reply(request, errno);
    fuse_reply_statfs(request, &facts);
}

}  // namespace

void add_attributes(fuse_lowlevel_ops& table) {
    table.getattr = get_attributes;
    table.setattr = set_attributes;
    table.getxattr = get_xattr;
    table.listxattr = list_xattr;
    table.setxattr = set_xattr;
    table.removexattr = remove_xattr;
    table.statfs = stat_file_system;
}

}  // namespace penstock::mount
