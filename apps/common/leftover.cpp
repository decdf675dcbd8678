#include "common/leftover.hpp"

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace penstock::apps {

namespace {

enum class kind : int { unused, reserved, mount, process, file, folder };

// Written while `what` is `reserved`, and read by the handler when it is more than that.
struct note {
    std::atomic<kind> what{kind::unused};
    pid_t child = 0;
    char path[PATH_MAX] = {};
};
constexpr int most_notes = 512;
note notes[most_notes];
std::atomic<int> paused{0};
std::atomic<bool> tidying{false}, tidied{false};
static_assert(std::atomic<kind>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void nap() {
    const timespec millisecond{0, 1000000};
    ::nanosleep(&millisecond, nullptr);
}

// The handler's way to wait: no condition variable may be used there.
void wait_until_zero(const std::atomic<int>& count) {
    for (int i = 0; i < 2000 && count.load() != 0; ++i) nap();
}

int reserve() {
    for (int i = 0; i < most_notes; ++i) {
        kind expected = kind::unused;
        if (notes[i].what.compare_exchange_strong(expected, kind::reserved)) return i;
    }
    return -1;
}

// Sequentially consistent like all here: the handler that reads the kind reads the path that was
// written before it.
int put(kind what, const std::string& path, pid_t child) {
    if (path.size() >= PATH_MAX) return -1;
    const int place = reserve();
    if (place < 0) return -1;
    std::memcpy(notes[place].path, path.c_str(), path.size() + 1);
    notes[place].child = child;
    notes[place].what.store(what);
    return place;
}

// Only a process that is root unmounts by itself. MNT_FORCE ends what is asked of the mount: a
// thread of this process that waits for an answer of this process would keep it from ending. fork()
// would run handlers that take locks, so the call itself is made.
void take_away(const char* point) {
    if (::umount2(point, MNT_FORCE | MNT_DETACH) == 0) return;
    const auto child = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child == 0) {
        ::execlp("fusermount3", "fusermount3", "-u", "-z", "-q", "--", point, nullptr);
        ::_exit(1);
    }
    for (int i = 0; child > 0 && i < 5000; ++i) {
        const pid_t ended = ::waitpid(child, nullptr, WNOHANG);
        if (ended != 0 && !(ended < 0 && errno == EINTR)) return;
        nap();
    }
}

void empty(int folder) {
    alignas(dirent64) char room[4096];
    for (long got; (got = ::syscall(SYS_getdents64, folder, room, sizeof room)) > 0;)
        for (long at = 0; at < got;) {
            const auto* const one = reinterpret_cast<const dirent64*>(room + at);
            ::unlinkat(folder, one->d_name, 0);  // fails for "." and ".."
            at += one->d_reclen;
        }
}

void remove_folder(const char* path) {
    const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder >= 0) {
        empty(folder);
        ::close(folder);
    }
    ::rmdir(path);
}

void undo(const note& one) {
    switch (one.what.load()) {
        case kind::mount: return take_away(one.path);
        case kind::process: ::kill(one.child, SIGKILL); return;
        case kind::file: ::unlink(one.path); return;
        case kind::folder: return remove_folder(one.path);
        default: return;
    }
}

}  // namespace

leftover& leftover::operator=(leftover&& other) noexcept {
    std::swap(place_, other.place_);
    return *this;
}

void leftover::file(const std::string& path) {
    forget();
    place_ = put(kind::file, path, 0);
}

void leftover::folder(const std::string& path) {
    forget();
    place_ = put(kind::folder, path, 0);
}

void leftover::mount(const std::string& point) {
    forget();
    place_ = put(kind::mount, point, 0);
}

void leftover::process(pid_t child) {
    forget();
    place_ = put(kind::process, {}, child);
}

void leftover::forget() {
    if (place_ != none) notes[place_].what.store(kind::unused);
    place_ = none;
}

// The thread takes no signal, and a handler in another thread waits until the count is back.
signal_pause::signal_pause() {
    static_assert(sizeof before_ >= sizeof(sigset_t));
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, &before);
    std::memcpy(before_, &before, sizeof before);
    paused.fetch_add(1);
}

signal_pause::~signal_pause() {
    sigset_t before;
    std::memcpy(&before, before_, sizeof before);
    paused.fetch_sub(1);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Processes that could make more files go first, and mounts before what they may show.
void tidy_leftovers() {
    const int code = errno;
    if (tidying.exchange(true)) {
        for (int i = 0; i < 10000 && !tidied.load(); ++i) nap();
        return;
    }
    wait_until_zero(paused);
    for (const kind what : {kind::process, kind::mount, kind::file, kind::folder})
        for (const note& one : notes)
            if (one.what.load() == what) undo(one);
    tidied.store(true);
    errno = code;
}

}  // namespace penstock::apps
