#include "mount/pass_through.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "mount/caller.hpp"
#include "mount/file_buffer.hpp"
#include "mount/tree.hpp"
#include "os/env.hpp"
#include "os/file_system.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

namespace {

// Of the protocol from 7.40 on (Linux 6.9), which is younger than some headers.
constexpr std::uint32_t open_passed = 1u << 7;  // FOPEN_PASSTHROUGH

struct backing_map {
    std::int32_t fd;
    std::uint32_t flags;
    std::uint64_t padding;
};
constexpr unsigned long backing_open = _IOW(229, 1, backing_map);
constexpr unsigned long backing_close = _IOW(229, 2, std::uint32_t);

struct open_answer {
    std::uint64_t handle;
    std::uint32_t flags;
    std::int32_t backing;
};
struct create_answer {
    fuse_entry_out entry;
    open_answer open;
};

open_answer answer_to(const node& file_node, const fuse_file_info& open) {
    return {open.fh, open_passed, file_node.passing.backing};
}

fuse_attr attributes_of(const struct stat& facts) {
    fuse_attr out{};
    out.ino = facts.st_ino;
    out.size = static_cast<std::uint64_t>(facts.st_size);
    out.blocks = static_cast<std::uint64_t>(facts.st_blocks);
    out.atime = static_cast<std::uint64_t>(facts.st_atim.tv_sec);
    out.mtime = static_cast<std::uint64_t>(facts.st_mtim.tv_sec);
    out.ctime = static_cast<std::uint64_t>(facts.st_ctim.tv_sec);
    out.atimensec = static_cast<std::uint32_t>(facts.st_atim.tv_nsec);
    out.mtimensec = static_cast<std::uint32_t>(facts.st_mtim.tv_nsec);
    out.ctimensec = static_cast<std::uint32_t>(facts.st_ctim.tv_nsec);
    out.mode = facts.st_mode;
    out.nlink = static_cast<std::uint32_t>(facts.st_nlink);
    out.uid = facts.st_uid;
    out.gid = facts.st_gid;
    out.rdev = static_cast<std::uint32_t>(facts.st_rdev);
    out.blksize = static_cast<std::uint32_t>(facts.st_blksize);
    return out;
}

void split(double seconds, std::uint64_t& whole, std::uint32_t& rest_ns) {
    whole = static_cast<std::uint64_t>(seconds);
    rest_ns = static_cast<std::uint32_t>((seconds - static_cast<double>(whole)) * 1e9);
}

host::file_key key_of(const node& file_node) { return {file_node.device, file_node.inode}; }

bool may_write(const fuse_file_info& open) { return (open.flags & O_ACCMODE) != O_RDONLY; }

// What the file system tells of writers, of any process, mappings too.
host::writers writers_of(const node& file_node) {
    const host::owned_fd fd(
        ::open(path_of(file_node.fd).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    host::file_facts facts;
    if (!fd || host::linux_environment().facts(fd.get(), facts) != 0) return host::writers::unknown;
    return facts.writing;
}

// The kernel opens the file of the source with the program's flags, so a file system that does not
// know this flag would fail the open.
bool can_be_direct(const node& file_node, const fuse_file_info& open) {
    if ((open.flags & O_DIRECT) == 0) return true;
    const host::owned_fd fd(::open(path_of(file_node.fd).c_str(),
                                   (open.flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC | O_NONBLOCK));
    return fd || errno != EINVAL;
}

// A file that a runtime may have pages of counts as used.
bool is_used(const tree& t, const host::file_key& key) {
    return t.buffer != nullptr || t.pooled != nullptr || t.shared->find_home(key) != nullptr ||
           t.shared->hub().known.may_have(key);
}

// Of a file that no program has open. The kernel opens the file of the source with the flags of the
// program's open, so a passed file goes on appending when the program has taken O_APPEND back.
bool may_pass(const tree& t, const node& file_node, const fuse_file_info& open) {
    if (!t.passing.is_on() || (open.fh & (has_false_size | only_appends | judges_reader)) != 0)
        return false;
    const bool appends = may_write(open) && (open.flags & O_APPEND) != 0;
    if (!file_node.passing.stores_past && (appends || is_used(t, key_of(file_node)))) return false;
    if (!can_be_direct(file_node, open)) return false;
    // The question for writers holds a lease for a moment, in which the kernel would fail the open.
    if (t.passing.is_careful() && may_write(open) && (open.flags & O_NONBLOCK) != 0) return false;
    return !t.passing.is_careful() || writers_of(file_node) != host::writers::unknown;
}

}  // namespace

bool passing_files::begin(int device, int root, bool careful) {
    const backing_map wanted{root, 0, 0};
    const int number = ::ioctl(device, backing_open, &wanted);
    if (number < 0 && (errno == EPERM || errno == ENOTTY)) return false;
    device_ = device;
    careful_ = careful;
    if (number > 0) close_backing(number);
    return true;
}

// Kernels before 6.17 or so take descriptors that read. That one is closed again at once, and reads
// only, so that it is no writer to those that ask for writers.
std::int32_t passing_files::open_backing(int path_fd) {
    // With whose rights the kernel writes it for all programs, of root too: none that go beyond the
    // limits of other users. A server's file system may ask whether that user may write at all.
    const as_ordinary writer(host::file_system_of(path_fd).is_local ? other_user : 0);
    const auto number_of = [this](int fd) {
        const backing_map wanted{fd, 0, 0};
        const int number = ::ioctl(device_, backing_open, &wanted);
        return number > 0 ? number : number == 0 ? -EINVAL : -errno;
    };
    if (takes_paths_) {
        const std::int32_t number = number_of(path_fd);
        if (number != -EBADF && number != -EOPNOTSUPP) return number;
    }
    const host::owned_fd fd(::open(path_of(path_fd).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return -errno;
    const std::int32_t number = number_of(fd.get());
    if (number > 0) takes_paths_ = false;
    return number;
}

void passing_files::close_backing(std::int32_t number) const {
    const auto which = static_cast<std::uint32_t>(number);
    ::ioctl(device_, backing_close, &which);
}

void end_passing(const host::file_key& key, pass_state& state) {
    for (; state.told_writers != 0; --state.told_writers) state.told->end(key);
    state.stores_past = false;
}

void look_for_stores_past(const tree& t, node& file_node) {
    pass_state& state = file_node.passing;
    std::uint64_t before = 0;
    {
        const std::lock_guard hold(file_node.lock);
        if (!state.stores_past || state.passed != 0 || !t.passing.is_careful()) return;
        before = state.stored_opens;
    }
    if (writers_of(file_node) != host::writers::none) return;
    const std::lock_guard hold(file_node.lock);
    // A mapping of an open that came and went meanwhile was not there to be found.
    if (state.stored_opens == before && state.passed == 0) end_passing(key_of(file_node), state);
}

file_way begin_way(tree& t, node& file_node, const fuse_file_info& open) {
    const std::lock_guard hold(file_node.lock);
    pass_state& state = file_node.passing;
    if (state.passed != 0 && !can_be_direct(file_node, open)) return file_way::refused;
    if (state.passed == 0) {
        if (state.served == 0 && may_pass(t, file_node, open)) {
            const std::int32_t number = t.passing.open_backing(file_node.fd);
            state.backing = number < 0 ? 0 : number;
        }
        if (state.backing == 0) {
            ++state.served;
            return state.stores_past ? file_way::served_uncached : file_way::served;
        }
    }
    ++state.passed;
    // The kernel's pages of the node, if it has any, stay and grow old.
    file_node.pages.forget();
    if (may_write(open)) {
        state.told = &t.shared->hub().passed;
        state.told->begin(key_of(file_node));
        ++state.told_writers;
    }
    if ((open.flags & O_ACCMODE) == O_RDWR) {
        state.stores_past = true;
        ++state.stored_opens;
    }
    return file_way::passed;
}

void end_way(tree& t, node& file_node, const fuse_file_info& open) {
    std::int32_t unused = 0;
    {
        const std::lock_guard hold(file_node.lock);
        pass_state& state = file_node.passing;
        if ((open.fh & is_passed) == 0) {
            --state.served;
            return;
        }
        if (--state.passed != 0) return;
        unused = std::exchange(state.backing, 0);
        if (!state.stores_past) end_passing(key_of(file_node), state);
    }
    t.passing.close_backing(unused);
    // Mostly there is no mapping, and then that is known from here on.
    look_for_stores_past(t, file_node);
}

int reply_passed(fuse_req_t request, const node& file_node, const fuse_file_info& open) {
    const open_answer out = answer_to(file_node, open);
    return fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}

int reply_passed(fuse_req_t request, const node& file_node, const fuse_entry_param& entry,
                 const fuse_file_info& open) {
    create_answer out{};
    out.entry.nodeid = entry.ino;
    out.entry.generation = entry.generation;
    split(entry.entry_timeout, out.entry.entry_valid, out.entry.entry_valid_nsec);
    split(entry.attr_timeout, out.entry.attr_valid, out.entry.attr_valid_nsec);
    out.entry.attr = attributes_of(entry.attr);
    out.open = answer_to(file_node, open);
    return fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out);
}

}  // namespace penstock::mount
