// Where the processes of one user that share a name find each other, and how they talk.
//
// A name is a directory that only the user may enter: $XDG_RUNTIME_DIR/penstock/NAME, or
// /tmp/penstock-UID/NAME where that variable is not set or names another user's directory. Each
// runtime has a socket there, of messages that keep their borders (SOCK_SEQPACKET). A newcomer
// connects to all that it finds. Sockets whose process is gone refuse; the newcomer removes them.
// So do those of another machine that sees the same folder, or of this one by another mount, as
// FUSE has it; these are not its to remove. So the name of a socket has the boot of its kernel and
// the device of the folder, and only those with the same are removed. What a killed process left
// before the machine started anew stays, where the folder does. Newcomers take turns (a lock on the
// directory), so of any two exactly one finds the other, and no socket is taken for stale before it
// listens.
//
// The last one takes the directory away, for it is empty then. A newcomer that has it open already
// cannot have a socket in it any more, and makes the directory again; so all that listen are in
// one.
//
// What clears up may take the directory away under those that listen: the end of a login session
// takes $XDG_RUNTIME_DIR, and a cleaner takes old files of /tmp. Then is_found() is false, and
// open() and listen() once more make the place again under the same path and id.
//
// No call waits, but for the lock, which has a limit. Negative errno on failure.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "os/shared_memory.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

class rendezvous {
public:
    rendezvous() = default;
    ~rendezvous();
    rendezvous(const rendezvous&) = delete;
    rendezvous& operator=(const rendezvous&) = delete;

    // Makes the directories of the name if need be; again after -ENOENT of listen(). A failure
    // names the path and the cure: another user owns one of them, or others may enter it. The
    // environment is read by the first call alone.
    status open(const std::string& name);
    [[nodiscard]] const std::string& path() const { return path_; }

    // Takes the turn of a newcomer, which ends with end_turn. False: another has it now.
    bool take_turn();
    void end_turn();

    // Makes the socket of this runtime, under a name that no other has. The name goes with the
    // object, unless a child of fork() inherited that. -ENOENT: the directory is gone.
    int listen();
    [[nodiscard]] int listener() const { return listener_.get(); }
    // Whether a newcomer finds the socket by the path.
    [[nodiscard]] bool is_found() const;
    // 64 random bits: they tell this runtime from all others of the name.
    [[nodiscard]] std::uint64_t id() const { return id_; }

    // Connects to all other sockets, and with `remove_stale` removes those that refuse. `busy`
    // counts those that take no more.
    std::vector<owned_fd> connect_to_others(bool remove_stale, std::size_t& busy);
    // A runtime that has just connected; none: nothing came.
    owned_fd accept();

    void close_in_child();

private:
    std::string base_, path_;
    owned_fd directory_, listener_;
    std::string socket_name_;  // empty: there is none
    std::uint64_t id_ = 0;
};

// The process at the other end, as the kernel says.
struct link_peer {
    uid_t user = 0;
    pid_t process = 0;  // 0: it cannot be named here, for it lies in another PID namespace
};
int peer_of(int socket, link_peer& out);
// A descriptor that becomes readable when the process ends; none where the kernel gives none.
owned_fd watch_process(pid_t process);

inline constexpr std::size_t most_passed_fds = 8;

// Sends one message, whole or not at all, with descriptors. -EAGAIN: the other end has not read
// earlier ones; -EPIPE: it is gone.
int send_message(int socket, const void* bytes, std::size_t size, const int* fds = nullptr,
                 std::size_t count = 0);
// The size of one message; 0: the other end has closed; -EAGAIN: there is none now; -EBADMSG: it is
// larger than that, or has more descriptors, and its first bytes are there; -EMFILE: this process
// may not have so many descriptors.
struct received_fds {
    std::array<owned_fd, most_passed_fds> fd;
    std::size_t count = 0;
};
std::int64_t receive_message(int socket, void* bytes, std::size_t size, received_fds& fds);

}  // namespace penstock::host
