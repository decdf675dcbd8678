#include "os/link_socket.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "os/file_system.hpp"
#include "os/file_kind.hpp"
#include "os/patient_open.hpp"

namespace penstock::host {

namespace {

constexpr int backlog = 64;
constexpr const char* socket_prefix = "runtime-";

// sudo -E leaves root the variable of another user. A directory that root made there would stay,
// and the user could not share any more.
bool is_of_another(const char* directory) {
    struct stat facts {};
    return ::stat(directory, &facts) == 0 && facts.st_uid != ::geteuid();
}

// Of the boot of this kernel: 32 random bits in hexadecimal.
std::string boot_text() {
    char id[8];
    const owned_fd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    return fd && ::read(fd.get(), id, sizeof id) == sizeof id ? std::string(id, sizeof id)
                                                              : "00000000";
}

// What names of sockets begin with of which a refusal says that the process is gone: made by this
// kernel, and on this file system, since by another mount of the folder none of them is reached.
std::string own_prefix(int directory) {
    struct stat facts {};
    if (::fstat(directory, &facts) != 0) facts.st_dev = 0;
    char device[24];
    std::snprintf(device, sizeof device, "-%llx-", static_cast<unsigned long long>(facts.st_dev));
    return socket_prefix + boot_text() + device;
}

std::string base_path() {
    const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
    return runtime != nullptr && runtime[0] == '/' && !is_of_another(runtime)
               ? std::string(runtime) + "/penstock"
               : "/tmp/penstock-" + std::to_string(::geteuid());
}

constexpr int most_tries = 100;

// A directory that the user owns and no other may enter; made if it is not there. The last process
// of a name may take it away before it is open.
status open_private(const std::string& path, owned_fd& out) {
    const std::string share = "share: '" + path + "' ";
    for (int i = 0; i < most_tries; ++i) {
        if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
            return {-errno, share + "cannot be made: " +
                                error_and_cure(code_of_open(errno),
                                               "set XDG_RUNTIME_DIR to a directory of "
                                               "your own")};
        out.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
        if (out || errno != ENOENT) break;
    }
    struct stat facts {};
    if (!out || ::fstat(out.get(), &facts) != 0)
        return {-errno, share + "is no directory that can be opened: " +
                            error_and_cure(code_of_open(errno),
                                           "remove it, or set XDG_RUNTIME_DIR to a "
                                           "directory of your own")};
    if (facts.st_uid != ::geteuid())
        return {-EPERM, share + "belongs to user " + std::to_string(facts.st_uid) +
                            "; remove it, or set XDG_RUNTIME_DIR to a directory of your own"};
    if ((facts.st_mode & 077) != 0) {
        char mode[8];
        std::snprintf(mode, sizeof mode, "%04o", facts.st_mode & 07777);
        return {-EPERM, share + "may be entered by others (mode " + mode + "); chmod 700 it"};
    }
    return {};
}

// By the open directory, so that the path is short and means this directory whatever its name leads
// to by now.
bool address_of(int directory, const std::string& name, sockaddr_un& out) {
    out = {};
    out.sun_family = AF_UNIX;
    const std::string path = path_of_descriptor(directory) + "/" + name;
    if (path.size() >= sizeof out.sun_path) return false;
    std::memcpy(out.sun_path, path.c_str(), path.size() + 1);
    return true;
}

owned_fd new_socket() {
    return owned_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

std::vector<std::string> sockets_in(int directory) {
    std::vector<std::string> out;
    const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const list = copy < 0 ? nullptr : ::fdopendir(copy);
    if (list == nullptr) {
        if (copy >= 0) ::close(copy);
        return out;
    }
    constexpr std::size_t most = 1024;
    while (const dirent* const entry = ::readdir(list)) {
        struct stat facts {};
        if (out.size() < most &&
            std::strncmp(entry->d_name, socket_prefix, std::strlen(socket_prefix)) == 0 &&
            ::fstatat(directory, entry->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISSOCK(facts.st_mode))
            out.emplace_back(entry->d_name);
    }
    ::closedir(list);
    return out;
}

}  // namespace

// The directory stays as long as it has a socket.
rendezvous::~rendezvous() {
    if (!directory_) return;
    if (!socket_name_.empty()) ::unlinkat(directory_.get(), socket_name_.c_str(), 0);
    ::rmdir(path_.c_str());
}

void rendezvous::close_in_child() {
    socket_name_.clear();
    listener_.reset();
    directory_.reset();
}

status rendezvous::open(const std::string& name) {
    if (base_.empty()) base_ = base_path();
    path_ = base_ + "/" + name;
    owned_fd outer;
    if (status s = open_private(base_, outer); !s) return s;
    const status opened = open_private(path_, directory_);
    if (!opened) directory_.reset();
    return opened;
}

bool rendezvous::take_turn() { return ::flock(directory_.get(), LOCK_EX | LOCK_NB) == 0; }

void rendezvous::end_turn() { ::flock(directory_.get(), LOCK_UN); }

int rendezvous::listen() {
    if (id_ == 0 && ::getrandom(&id_, sizeof id_, GRND_NONBLOCK) != sizeof id_) return -EAGAIN;
    char end[17];
    std::snprintf(end, sizeof end, "%016llx", static_cast<unsigned long long>(id_));
    const std::string name = own_prefix(directory_.get()) + end;
    sockaddr_un address{};
    if (!address_of(directory_.get(), name, address)) return -ENAMETOOLONG;
    owned_fd made = new_socket();
    if (!made) return -errno;
    if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return -errno;
    socket_name_ = name;
    if (::listen(made.get(), backlog) != 0) return -errno;
    listener_ = std::move(made);
    return 0;
}

// The name is of 64 random bits, so what is there under it is this socket. A look that fails for
// another reason says nothing about it.
bool rendezvous::is_found() const {
    struct stat facts {};
    return ::lstat((path_ + "/" + socket_name_).c_str(), &facts) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

std::vector<owned_fd> rendezvous::connect_to_others(bool remove_stale, std::size_t& busy) {
    std::vector<owned_fd> out;
    const std::string own = own_prefix(directory_.get());
    for (const std::string& name : sockets_in(directory_.get())) {
        sockaddr_un address{};
        owned_fd made = new_socket();
        if (name == socket_name_ || !made || !address_of(directory_.get(), name, address)) continue;
        if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
            out.push_back(std::move(made));
        else if (errno == EAGAIN) ++busy;
        else if (errno == ECONNREFUSED && remove_stale && name.starts_with(own))
            ::unlinkat(directory_.get(), name.c_str(), 0);
    }
    return out;
}

owned_fd rendezvous::accept() {
    return owned_fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

int peer_of(int socket, link_peer& out) {
    ucred facts{};
    socklen_t size = sizeof facts;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &facts, &size) != 0) return -errno;
    out = {facts.uid, facts.pid};
    return 0;
}

owned_fd watch_process([[maybe_unused]] pid_t process) {
#if defined(SYS_pidfd_open)
    if (process > 0) return owned_fd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
#endif
    return {};
}

int send_message(int socket, const void* bytes, std::size_t size, const int* fds,
                 std::size_t count) {
    iovec part{const_cast<void*>(bytes), size};
    alignas(cmsghdr) char room[CMSG_SPACE(most_passed_fds * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (count > most_passed_fds) return -EINVAL;
    if (count != 0) {
        message.msg_control = room;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    }
    for (;;) {
        if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
        if (errno != EINTR) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    }
}

std::int64_t receive_message(int socket, void* bytes, std::size_t size, received_fds& fds) {
    iovec part{bytes, size};
    alignas(cmsghdr) char room[CMSG_SPACE(most_passed_fds * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    ssize_t got = 0;
    do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    fds.count = 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
            owned_fd taken(fd);  // closed, if there is no room for it
            if (fds.count < fds.fd.size()) fds.fd[fds.count++] = std::move(taken);
        }
    }
    // The kernel cuts descriptors off that have no room here, and those that this process may not
    // have.
    if ((message.msg_flags & MSG_CTRUNC) != 0 && fds.count < fds.fd.size()) return -EMFILE;
    return (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ? -EBADMSG
                                                               : static_cast<std::int64_t>(got);
}

}  // namespace penstock::host
