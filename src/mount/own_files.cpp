#include "mount/own_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "mount/mount.hpp"
#include "os/not_inherited.hpp"

namespace penstock::mount {

namespace {

// Calls that wait for the source at one time. A further one waits for one of these.
constexpr std::size_t most_threads = 16;

constexpr long close_range_number = 436;  // Linux 5.9; newer than some headers
constexpr unsigned with_own_table = 2;    // CLOSE_RANGE_UNSHARE

constexpr long openat2_number = 437;  // Linux 5.6; newer than some headers

bool close_from(unsigned first, unsigned flags) {
    return ::syscall(close_range_number, first, ~0u, flags) == 0;
}

int open_without_links(const std::string& path, int flags) {
    constexpr std::uint64_t no_links = 0x04;  // RESOLVE_NO_SYMLINKS
    const struct {
        std::uint64_t flags, mode, resolve;
    } how{static_cast<std::uint64_t>(flags), 0, no_links};
    return static_cast<int>(::syscall(openat2_number, AT_FDCWD, path.c_str(), &how, sizeof how));
}

// Older kernels and some containers do not have the call.
bool can_do_without_links() {
    static const bool can = [] {
        const int fd = open_without_links("/", O_PATH | O_CLOEXEC);
        if (fd >= 0) ::close(fd);
        return fd >= 0;
    }();
    return can;
}

}  // namespace

// A copy of a descriptor keeps its file open after the program has closed its own: a reader of a
// pipe would wait for ever. So nothing stays. The kernel copies none from the first one on that is
// to be closed, so a table of a million costs nothing; the smallest has 64. The devices go first:
// to close a file of a mount waits for an answer.
void leave_descriptors() {
    constexpr unsigned smallest_table = 64;
    if (!close_from(smallest_table, with_own_table) && ::unshare(CLONE_FILES) != 0) return;
    host::close_copies_of_not_inherited();
    if (close_from(0, 0)) return;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    for (rlim_t fd = 0; fd < limit.rlim_cur; ++fd) ::close(static_cast<int>(fd));
}

void own_files::begin() {
    const std::lock_guard hold(lock_);
    is_ending_ = false;
    threads_.emplace_back([this] {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are the program's
        leave_descriptors();
        serve();
    });
}

void own_files::end() {
    std::vector<std::thread> ending;
    {
        const std::lock_guard hold(lock_);
        is_ending_ = true;
        ending = std::exchange(threads_, {});
    }
    wanted_.notify_all();
    for (std::thread& each : ending) each.join();
}

std::optional<int> own_files::write_back(const std::string& path, std::uint64_t inode) {
    order mine{path, inode};
    std::unique_lock hold(lock_);
    if (is_ending_) return std::nullopt;
    orders_.push_back(&mine);
    hold.unlock();  // else the thread that wakes waits for it
    wanted_.notify_one();
    hold.lock();
    done_.wait(hold, [&] { return mine.is_done; });
    return mine.code;
}

// A thread that takes an order sees to it that another one is there for the next. It makes it
// itself, since a thread shares the table of the one that made it.
void own_files::serve() {
    for (std::unique_lock hold(lock_);;) {
        ++idle_;
        wanted_.wait(hold, [&] { return is_ending_ || !orders_.empty(); });
        --idle_;
        if (orders_.empty()) return;
        order& next = *orders_.front();
        orders_.pop_front();
        if (idle_ == 0) add_thread();
        hold.unlock();
        const std::optional<int> code = carry_out(next);
        hold.lock();
        next.code = code;
        next.is_done = true;
        hold.unlock();
        done_.notify_all();
        hold.lock();
    }
}

// With lock_. Where there is none to be had, those that are there do the work.
void own_files::add_thread() try {
    if (threads_.size() < most_threads && !is_ending_) threads_.emplace_back([this] { serve(); });
} catch (const std::bad_alloc&) {
} catch (const std::system_error&) {
}

// Opened so that the mount knows that it is ours. A descriptor, or -1. Meanwhile a user of the
// mount may put a link in the place of a folder of the path. So no link is followed: root's open of
// a file of that user's choice can do more than give a descriptor.
int own_files::open(const std::string& path) {
    constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const std::lock_guard hold(opening_);
    opener_ = ::gettid();
    const int fd =
        can_do_without_links() ? open_without_links(path, flags) : ::open(path.c_str(), flags);
    opener_ = 0;
    return fd;
}

// The numbers of inodes are those of the source. So the source itself and another mount of it,
// which may lie at the path by now, have a file of the same number there. That one is not opened:
// the open could wait for what this thread is waited for.
std::optional<int> own_files::carry_out(const order& wanted) {
    if (device_at(wanted.path) != device_) return std::nullopt;
    const int fd = open(wanted.path);
    if (fd < 0) return std::nullopt;
    std::optional<int> code;
    struct stat facts {};
    if (::fstat(fd, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == wanted.inode)
        code = ::fsync(fd) == 0 ? 0 : -errno;
    ::close(fd);
    return code;
}

}  // namespace penstock::mount
