// Names: looking up, making, linking, removing, renaming.
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <vector>

#include "mount/caller.hpp"
#include "mount/tree.hpp"

namespace penstock::mount {

int entry_of(tree& t, int path_fd, fuse_entry_param& out) {
    out = {};
    out.attr_timeout = t.attribute_seconds;
    out.entry_timeout = t.entry_seconds;
    if (path_fd < 0) return errno;
    int code = 0;
    const node* const found = t.nodes.remember(path_fd, out.attr, code);
    if (found == nullptr) return code;
    out.ino = t.nodes.number_of(*found);
    out.generation = found->generation;
    return 0;
}

int look_up(tree& t, node& parent, const char* name, fuse_entry_param& out) {
    return entry_of(t, ::openat(parent.fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), out);
}

void forget_unheard(tree& t, const fuse_entry_param& told, int answer) {
    if (answer == -ENOENT && told.ino != 0) t.nodes.forget(told.ino, 1);
}

namespace {

// Answers what was made, or why it was not; make(): 0 or an errno.
template <typename Make>
void make_entry(fuse_req_t request, node& parent, const char* name, const Make& make) {
    tree& t = tree_of(request);  // the request is gone with its answer
    fuse_entry_param entry{};
    place_for_node place(parent);
    int code = place.code();
    if (code == 0) code = make();
    place.give();
    if (code == 0) code = look_up(t, parent, name, entry);
    if (code != 0) return reply(request, code);
    forget_unheard(t, entry, fuse_reply_entry(request, &entry));
}

int code_of(int result) { return result < 0 ? errno : 0; }

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    node& at = begin(request, parent);
    tree& t = tree_of(request);
    fuse_entry_param entry{};
    const int code = look_up(t, at, name, entry);
    if (code == ENOENT) entry.ino = 0;  // that there is none is believed for a while too
    else if (code != 0) return reply(request, code);
    forget_unheard(t, entry, fuse_reply_entry(request, &entry));
}

void forget(fuse_req_t request, fuse_ino_t number, std::uint64_t lookups) {
    tree_of(request).nodes.forget(number, lookups);
    fuse_reply_none(request);
}

void forget_many(fuse_req_t request, std::size_t count, fuse_forget_data* which) {
    for (std::size_t i = 0; i < count; ++i)
        tree_of(request).nodes.forget(which[i].ino, which[i].nlookup);
    fuse_reply_none(request);
}

void make_node(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
    node& at = begin(request, parent);
    make_entry(request, at, name, [&] {
        const as_caller caller(request, mode);
        return code_of(::mknodat(at.fd, name, caller.mode_of(mode), device));
    });
}

void make_directory(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
    node& at = begin(request, parent);
    make_entry(request, at, name, [&] {
        const as_caller caller(request);
        return code_of(::mkdirat(at.fd, name, caller.mode_of(mode)));
    });
}

void make_symlink(fuse_req_t request, const char* target, fuse_ino_t parent, const char* name) {
    node& at = begin(request, parent);
    make_entry(request, at, name, [&] {
        const as_caller caller(request);
        return code_of(::symlinkat(target, at.fd, name));
    });
}

void make_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char* name) {
    node& file_node = begin(request, number);
    node& at = tree_of(request).nodes.at(parent);
    make_entry(request, at, name, [&] {
        const as_ordinary caller(request);
        const int code = code_of(::linkat(file_node.fd, "", at.fd, name, AT_EMPTY_PATH));
        if (code != ENOENT && code != EPERM) return code;
        // that way is for the privileged
        return code_of(
            ::linkat(AT_FDCWD, path_of(file_node.fd).c_str(), at.fd, name, AT_SYMLINK_FOLLOW));
    });
}

// Links of /proc tell their targets to some users only.
ssize_t read_link_as_judged(fuse_req_t request, node& link_node, std::vector<char>& target) {
    std::optional<as_user> caller;
    if (is_made_up(link_node)) caller.emplace(request, link_node);
    if (caller && !caller->is_so()) return -EACCES;
    const ssize_t length = ::readlinkat(link_node.fd, "", target.data(), target.size() - 1);
    return length < 0 ? -errno : length;
}

void read_link(fuse_req_t request, fuse_ino_t number) {
    node& link_node = begin(request, number);
    std::vector<char> target(PATH_MAX + 1);
    const ssize_t length = read_link_as_judged(request, link_node, target);
    if (length < 0) return reply(request, static_cast<int>(-length));
    target[static_cast<std::size_t>(length)] = 0;
    fuse_reply_readlink(request, target.data());
}

// In a folder with the sticky bit the owner of what has the name decides, and the kernel judged
// what had it up to a second ago. So the source judges again. Elsewhere the folder alone decides.
void remove_entry(fuse_req_t request, fuse_ino_t parent, const char* name, int flags) {
    const node& at = begin(request, parent);
    struct stat facts {};
    if (::fstatat(at.fd, "", &facts, AT_EMPTY_PATH) != 0) return reply(request, errno);
    int code = 0;
    {
        std::optional<as_ordinary> caller;
        if ((facts.st_mode & S_ISVTX) != 0)
            caller.emplace(request, as_ordinary::sticky_rule::judged_by_source);
        code = code_of(::unlinkat(at.fd, name, flags));
    }
    reply(request, code);
}

void remove_name(fuse_req_t request, fuse_ino_t parent, const char* name) {
    remove_entry(request, parent, name, 0);
}

void remove_directory(fuse_req_t request, fuse_ino_t parent, const char* name) {
    remove_entry(request, parent, name, AT_REMOVEDIR);
}

void rename_name(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                 const char* new_name, unsigned flags) {
    node& from = begin(request, parent);
    int code = 0;
    {
        const as_ordinary caller(request, as_ordinary::sticky_rule::judged_by_source);
        code = code_of(
            ::renameat2(from.fd, name, tree_of(request).nodes.at(new_parent).fd, new_name, flags));
    }
    reply(request, code);
}

}  // namespace

void add_names(fuse_lowlevel_ops& table) {
    table.lookup = lookup;
    table.forget = forget;
    table.forget_multi = forget_many;
    table.mknod = make_node;
    table.mkdir = make_directory;
    table.symlink = make_symlink;
    table.link = make_link;
    table.readlink = read_link;
    table.unlink = remove_name;
    table.rmdir = remove_directory;
    table.rename = rename_name;
}

}  // namespace penstock::mount
