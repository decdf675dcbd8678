// Acting for the program that asked, where that matters: what is made belongs to it.
//
// Whether it may is the kernel's question (default_permissions), answered before we are asked. So
// we keep the right to pass over permissions and only take the caller's user and group, of this
// thread alone. Where we are not root there is one user only, and just the umask is taken.
//
// The umask comes with the request (FUSE_CAP_DONT_MASK), because the source's file system applies
// it: below a folder with a default list it does not count.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "mount/tree.hpp"

namespace penstock::mount {

// Whether the caller is in this group. False also where the kernel does not tell.
bool is_caller_in_group(fuse_req_t request, gid_t group);

// The supplementary groups of this thread, changed for a while.
class lent_groups {
public:
    lent_groups() = default;
    ~lent_groups() { give_back(); }
    lent_groups(const lent_groups&) = delete;
    lent_groups& operator=(const lent_groups&) = delete;

    // False: nothing is changed.
    bool take(const std::vector<gid_t>& groups);
    void give_back();

private:
    std::vector<gid_t> own_;
    bool changed_ = false;
};

class as_caller {
public:
    // `mode`: of what is made or changed. Only where that has a set-group bit do the caller's
    // further groups count, and reading them takes longer than all else here.
    explicit as_caller(fuse_req_t request, mode_t mode = 0);
    ~as_caller();
    as_caller(const as_caller&) = delete;
    as_caller& operator=(const as_caller&) = delete;

    // The mode to pass when making a file, folder or node.
    [[nodiscard]] mode_t mode_of(mode_t wanted) const {
        return has_mask_ ? wanted : wanted & ~mask_;
    }

private:
    lent_groups groups_;
    std::uint64_t own_rights_ = 0;  // capabilities in force
    bool changed_ = false;
    bool has_mask_ = false;  // this thread has the caller's umask in force
    mode_t mask_ = 0;
};

// The rights of one user and no others, in force for this thread: the source judges as if that user
// called it directly. For files that judge their readers by more than a mode (/proc). For root it
// leaves in force what the caller has in force too. Does nothing where we are not root.
//
// The process stays the mount's. Its real and saved user stay root, so the user cannot send the
// thread a signal or trace it. Its capabilities stay permitted, so the user cannot change its
// priority or processors.
class as_user {
public:
    explicit as_user(fuse_req_t request);  // the caller
    // The caller, that is about to open or read this: refused where it would see this process.
    as_user(fuse_req_t request, const node& file_node);
    explicit as_user(const node& file_node);  // the same for other_user
    ~as_user();
    as_user(const as_user&) = delete;
    as_user& operator=(const as_user&) = delete;

    // False: some rights could not be given up, and the caller of this class must refuse.
    [[nodiscard]] bool is_so() const { return is_so_; }

private:
    void begin(fuse_req_t request, const node* file_node);
    void take(uid_t user, gid_t group, const std::vector<gid_t>& groups, std::uint64_t rights);

    lent_groups groups_;
    gid_t own_group_ = 0;
    std::uint64_t own_rights_ = 0;  // capabilities in force
    bool changed_ = false, is_so_ = true;
};

// A user other than root in what a file system grants to root without asking for permissions: the
// blocks that ext4 keeps for root, more than a quota allows, names of attributes that are hidden.
// The rights over files stay, with which the mount does what the kernel allowed. Does nothing where
// we are not root.
class as_ordinary {
public:
    // Which names a user may take away in a folder with the sticky bit.
    enum class sticky_rule : std::uint8_t { passed_over, judged_by_source };

    explicit as_ordinary(
        fuse_req_t request,
        sticky_rule rule = sticky_rule::passed_over);  // the caller, if that is not root
    explicit as_ordinary(uid_t user);
    ~as_ordinary();
    as_ordinary(const as_ordinary&) = delete;
    as_ordinary& operator=(const as_ordinary&) = delete;

private:
    void take(uid_t user, std::uint64_t without);

    std::uint64_t own_rights_ = 0;
    bool changed_ = false;
};

// Has the file set-id bits that go when the caller changes its bytes? Past its cache the kernel
// leaves these to us, and elsewhere it goes by what it knew of the file up to a second ago. What is
// done as_caller has the source's file system take them away, or refuse the change where it cannot.
bool is_to_take_bits(fuse_req_t request, int fd);

// A user that changes the bytes of a file: as_caller where bits are to go, else as_ordinary.
class as_writer {
public:
    as_writer(fuse_req_t request, int fd);

private:
    std::optional<as_caller> caller_;
    std::optional<as_ordinary> ordinary_;
};

// No user in particular, and not root.
constexpr uid_t other_user = 65534;

// Files that the source makes up when they are read, such as those of /proc and /sys. Their sizes
// say nothing about the bytes that they give, and the bytes may depend on the reader.
bool is_made_up(const node& file_node);

// Answers a read of a file of a false size with the bytes that come, at most as many as the program
// asks for.
void read_what_comes(fuse_req_t request, const fuse_file_info* open, std::size_t bytes,
                     off_t offset);

// The bytes that a file which claims to be empty gives to any user. None if reading it might wait
// or use them up, or if they are more than 1 MiB. Throws std::bad_alloc.
std::vector<char> public_content_of(const node& file_node);

}  // namespace penstock::mount
