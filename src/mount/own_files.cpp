#include "mount/own_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <memory>

#include "mount/mount.hpp"
#include "os/not_inherited.hpp"

namespace penstock::mount {

namespace {

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

bool own_openers::has(pid_t thread) const {
    return thread != 0 && std::any_of(places_.begin(), places_.end(),
                                      [thread](const auto& place) { return place == thread; });
}

// Each thread of own_files has at most one entry, so there is a free place.
own_openers::entry::entry(own_openers& all) {
    place_ = std::find_if(all.places_.begin(), all.places_.end(), [](auto& place) {
        pid_t none = 0;
        return place.compare_exchange_strong(none, ::gettid());
    });
}

own_openers::entry::~entry() { *place_ = 0; }

void own_files::begin() {
    threads_.emplace().begin([] {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // signals are the program's
        leave_descriptors();
    });
}

void own_files::end() {
    if (threads_) threads_->end();
}

std::optional<int> own_files::write_back(const std::string& path, std::uint64_t inode) {
    // Shared: the thread may still be telling when the caller has the result.
    const auto told = std::make_shared<std::promise<std::optional<int>>>();
    const auto work = [&, told] { told->set_value(carry_out(path, inode)); };
    if (!threads_ || !threads_->put(work)) return std::nullopt;
    return told->get_future().get();
}

// Opened so that the mount knows that it is ours. A descriptor, or -1. Meanwhile a user of the
// mount may put a link in the place of a folder of the path. So no link is followed: root's open of
// a file of that user's choice can do more than give a descriptor.
int own_files::open(const std::string& path) {
    constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const own_openers::entry ours(openers_);
    return can_do_without_links() ? open_without_links(path, flags) : ::open(path.c_str(), flags);
}

// The numbers of inodes are those of the source. So the source itself and another mount of it,
// which may lie at the path by now, have a file of the same number there. That one is not opened:
// the open could wait for what this thread is waited for.
std::optional<int> own_files::carry_out(const std::string& path, std::uint64_t inode) {
    if (device_at(path) != device_) return std::nullopt;
    const int fd = open(path);
    if (fd < 0) return std::nullopt;
    std::optional<int> code;
    struct stat facts {};
    if (::fstat(fd, &facts) == 0 && facts.st_dev == device_ && facts.st_ino == inode)
        code = ::fsync(fd) == 0 ? 0 : -errno;
    ::close(fd);
    return code;
}

}  // namespace penstock::mount
