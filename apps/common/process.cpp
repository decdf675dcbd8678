// How a process starts, which errors end it, and what a signal takes away before it ends.
#include "common/process.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <new>
#include <stdexcept>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "common/message.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

namespace {

using kind = leftover_kind;

// Written while `state` is `reserved`, and read by the handler when it is more than that.
struct note {
    std::atomic<kind> state{kind::unused};
    pid_t child = 0;
    std::uint64_t device = 0;  // of a mount; 0: not known
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

// What the path leads to is of this file system; 0: not known. Also for a handler; asks no server.
std::uint64_t device_at(const char* path) {
    struct statx facts {};
    if (::statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &facts) != 0) return 0;
    return makedev(facts.stx_dev_major, facts.stx_dev_minor);
}

// What lies at the point by now may be another's mount, which stays.
//
// Only a process that is root unmounts by itself. MNT_FORCE ends what is asked of the mount: a
// thread of this process that waits for an answer of this process would keep it from ending. fork()
// would run handlers that take locks, so the call itself is made.
void take_away(const char* point, std::uint64_t device) {
    if (device != 0 && device_at(point) != device) return;
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

void remove_folder(const char* path) {
    const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    alignas(dirent64) char room[4096];
    for (long got; (got = ::syscall(SYS_getdents64, folder, room, sizeof room)) > 0;)
        for (long at = 0; at < got;) {
            const auto* const entry = reinterpret_cast<const dirent64*>(room + at);
            ::unlinkat(folder, entry->d_name, 0);  // fails for "." and ".."
            at += entry->d_reclen;
        }
    ::close(folder);
    ::rmdir(path);
}

void undo(const note& entry) {
    switch (entry.state.load()) {
        case kind::mount: return take_away(entry.path, entry.device);
        case kind::process: ::kill(entry.child, SIGKILL); return;
        case kind::file: ::unlink(entry.path); return;
        case kind::folder: return remove_folder(entry.path);
        default: return;
    }
}

}  // namespace

// Sequentially consistent like all here: the handler that reads the kind reads the path that was
// written before it.
void leftover::note(leftover_kind state, const std::string& path, pid_t child) {
    forget();
    if (path.size() >= PATH_MAX) return;
    for (int i = 0; i < most_notes && place_ == none; ++i) {
        kind expected = kind::unused;
        if (notes[i].state.compare_exchange_strong(expected, kind::reserved)) place_ = i;
    }
    if (place_ == none) return;
    std::memcpy(notes[place_].path, path.c_str(), path.size() + 1);
    notes[place_].child = child;
    notes[place_].device = state == kind::mount ? device_at(notes[place_].path) : 0;
    notes[place_].state.store(state);
}

void leftover::forget() {
    if (place_ != none) notes[place_].state.store(kind::unused);
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
    // The handler's way to wait: no condition variable may be used there.
    for (int i = 0; i < 2000 && paused.load() != 0; ++i) nap();
    for (const kind state : {kind::process, kind::mount, kind::file, kind::folder})
        for (const note& entry : notes)
            if (entry.state.load() == state) undo(entry);
    tidied.store(true);
    errno = code;
}

namespace {

using handler = void (*)(int);

// Signals that end a program which does nothing about them. Those of the first line were meant for
// it even where a shell started it in the background and so had it ignore them; the others stay
// ignored where they are (nohup).
constexpr int meant[] = {SIGINT, SIGQUIT, SIGTERM};
constexpr int others[] = {SIGHUP,  SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
                          SIGPROF, SIGXCPU, SIGIO,   SIGPWR,  SIGSTKFLT};
// A mistake of the program, or a mapped file that was cut short.
constexpr int faults[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

std::atomic<handler> library_handler{nullptr};
std::atomic<bool> was_told{false};
std::atomic<int> turned_into{0};

// The usual effect, which is that the program ends, is set last: before that it would end the
// program for another thread that the same signal meets, and what is not yet tidied would stay. A
// mistake in tidying itself still ends it: the kernel does where the handler blocks its signal, and
// the handler of another one waits some seconds at most.
void end_at_once(int number) {
    tidy_leftovers();
    ::signal(number, SIG_DFL);
    sigset_t this_one;
    ::sigemptyset(&this_one);
    ::sigaddset(&this_one, number);
    ::pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    ::raise(number);
}

// By an address, and not sent by another program. Several threads may meet it: one says it, and
// none ends the program before that is done, or standard error takes nothing for some seconds.
void end_by_bus_error(int number, siginfo_t* about, void*) {
    static std::atomic<bool> was_begun{false}, was_said{false};
    if (about->si_code == BUS_ADRERR) {
        if (!was_begun.exchange(true)) {
            say_in_handler(
                "a file that this program reads through a memory map became shorter meanwhile, or "
                "its disk failed or is full (SIGBUS); run again when no program changes it");
            was_said.store(true);
        }
        for (int i = 0; i < 2000 && !was_said.load(); ++i) nap();
    }
    end_at_once(number);
}

void end_in_order(int number) {
    if (was_told.exchange(true)) return end_at_once(number);
    library_handler.load()(number);
}

void pass_on(int) { ::kill(::getpid(), turned_into.load()); }

int take(int number, handler callback) {
    struct sigaction action {};
    action.sa_handler = callback;
    return ::sigaction(number, &action, nullptr) == 0 ? 0 : -errno;
}

handler handler_of(int number) {
    struct sigaction action {};
    return ::sigaction(number, nullptr, &action) == 0 ? action.sa_handler : SIG_ERR;
}

// All signals that end programs, but for `except`.
int take_all(handler callback, int except = 0) {
    int code = 0;
    const auto take_one = [&](int number, bool even_ignored) {
        if (number != except && (even_ignored || handler_of(number) != SIG_IGN))
            code = std::min(code, take(number, callback));
    };
    for (const int number : meant) take_one(number, true);
    for (const int number : others) take_one(number, false);
    for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) take_one(number, false);
    return code;
}

// A closed input is an empty one. A write to a closed output stays the error that it was (EBADF): a
// folder that is open for nothing has the number. /dev/null would take the bytes, also where they
// come by the name /dev/stdout.
void open_standard_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        const bool is_input = fd == STDIN_FILENO;
        if (!is_input || ::open("/dev/null", O_RDONLY | O_NOCTTY) < 0) ::open("/", O_PATH);
    }
}

// Descriptors cost nothing until they are used. The runtime keeps files open up to half of the
// limit, and programs that this one starts may close every number below it, so it does not go as
// high as it could.
void raise_file_limit() {
    constexpr rlim_t enough = 1u << 16;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlim_t wanted = std::min(limit.rlim_max, enough);
    if (wanted <= limit.rlim_cur) return;
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void start() {
    open_standard_streams();
    raise_file_limit();
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
    static_cast<void>(take_all(end_at_once));
    for (const int number : faults)
        if (handler_of(number) == SIG_DFL)
            static_cast<void>(take(number, end_at_once));  // a sanitizer has its own
    struct sigaction of_bus {};
    if (handler_of(SIGBUS) != end_at_once) return;
    of_bus.sa_sigaction = end_by_bus_error;
    of_bus.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &of_bus, nullptr);
}

}  // namespace

int run_process(const char* name, const char* smaller, const std::function<int()>& body) {
    set_program_name(name);  // before there is a handler that says it
    start();
    try {
        return body();
    } catch (const std::bad_alloc&) {
        say(std::string("out of memory; free some, or ") + smaller);
    } catch (const std::length_error&) {
        say(std::string("what was asked for is larger than memory can be; ") + smaller);
    } catch (const std::system_error& failed) {
        const bool threads = failed.code() == std::errc::resource_unavailable_try_again;
        say(threads ? "no more threads can be had: " + std::string(failed.what()) +
                          "; give fewer --workers, or end some programs"
                    : std::string(failed.what()) + "; " + smaller);
    } catch (const std::exception& failed) {
        say(std::string("unexpected: ") + failed.what() + "; please report this");
    }
    return exit_failed;
}

// The library's own handler is called by ours, which stays for the second signal.
status watch_signals() {
    int code = interrupt_on_signals();
    if (code == 0) {
        library_handler.store(handler_of(SIGTERM));
        code = take_all(end_in_order);
    }
    if (code == 0) return {};
    return {code, "signals: " + error_text(code) + "; Ctrl-C could not be prepared for"};
}

status not_interrupted() {
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    return {};
}

void turn_signals_into(int number) {
    turned_into.store(number);
    static_cast<void>(take_all(pass_on, number));
}

}  // namespace penstock::apps
