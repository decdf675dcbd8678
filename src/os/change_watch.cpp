#include "os/change_watch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <string>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/file_system.hpp"

namespace penstock::host {

namespace {

// The kernel's queue of a thread, made at its first write. 0: there is none.
class write_queue {
public:
    write_queue() {
        if (::syscall(SYS_io_setup, 1, &context_) != 0) context_ = 0;
    }
    ~write_queue() {
        if (context_ != 0) ::syscall(SYS_io_destroy, context_);
    }
    write_queue(const write_queue&) = delete;
    write_queue& operator=(const write_queue&) = delete;
    [[nodiscard]] aio_context_t context() const { return context_; }

private:
    aio_context_t context_ = 0;
};

// The queue has room for one write, so the event that comes is that of this write.
std::int64_t await_write(aio_context_t context) {
    io_event event{};
    for (;;) {
        const long got = ::syscall(SYS_io_getevents, context, 1L, 1L, &event, nullptr);
        if (got == 1) return event.res;
        // The write may still read the caller's memory, so nothing but its end ends the wait.
        if (got < 0 && errno != EINTR) return -errno;
    }
}

}  // namespace

int open_change_watch() {
    const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    return watch >= 0 ? watch : -errno;
}

int add_to_watch(int watch, int fd) {
    const std::string name = path_of_descriptor(fd);
    const int number = ::inotify_add_watch(watch, name.c_str(), IN_MODIFY | IN_CLOSE_WRITE);
    return number >= 0 ? number : -errno;
}

void remove_from_watch(int watch, int number) { ::inotify_rm_watch(watch, number); }

void read_change_watch(int watch, std::vector<int>& out) {
    alignas(inotify_event) std::array<char, 4096> room;
    for (;;) {
        const ssize_t got = ::read(watch, room.data(), room.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno != EAGAIN) out.push_back(environment::all_files);
        if (got <= 0) return;
        for (std::size_t at = 0; at + sizeof(inotify_event) <= static_cast<std::size_t>(got);) {
            inotify_event event{};
            std::memcpy(&event, room.data() + at, sizeof event);
            out.push_back((event.mask & IN_Q_OVERFLOW) != 0 ? environment::all_files : event.wd);
            at += sizeof event + event.len;
        }
    }
}

// The signal that tells of a break is one that is ignored unless asked for.
int take_sole_lease(int fd) {
    const file_system_kind& lies_on = file_system_of(fd);
    if (!lies_on.is_local || !lies_on.notes_stores) return -EINVAL;
    if (::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_WRLCK) == 0) return 0;
    return errno == EOPNOTSUPP ? -EINVAL : -errno;
}

std::int64_t write_without_event(int fd, const memory_piece* pieces, std::size_t count,
                                 std::uint64_t offset) {
    thread_local const write_queue queue;
    if (queue.context() == 0) return -EOPNOTSUPP;
    std::array<iovec, 1024> places;
    const std::size_t most = std::min(count, places.size());
    for (std::size_t i = 0; i < most; ++i)
        places[i] = {const_cast<std::byte*>(pieces[i].from), pieces[i].bytes};
    iocb write{};
    write.aio_fildes = static_cast<std::uint32_t>(fd);
    write.aio_lio_opcode = IOCB_CMD_PWRITEV;
    write.aio_buf = reinterpret_cast<std::uintptr_t>(places.data());
    write.aio_nbytes = most;
    write.aio_offset = static_cast<std::int64_t>(offset);
    iocb* list = &write;
    // The kernel wrote nothing of a write that it did not take, so the caller may write in another
    // way, and learns from that what is wrong.
    return ::syscall(SYS_io_submit, queue.context(), 1L, &list) == 1 ? await_write(queue.context())
                                                                     : -EOPNOTSUPP;
}

}  // namespace penstock::host
