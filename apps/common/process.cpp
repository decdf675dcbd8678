#include "common/process.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <iterator>
#include <new>
#include <stdexcept>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

#include "common/leftover.hpp"
#include "common/message.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

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

// The usual effect, which is that the program ends: first set, so that a mistake in tidying ends it
// too.
void end_at_once(int number) {
    ::signal(number, SIG_DFL);
    tidy_leftovers();
    sigset_t this_one;
    ::sigemptyset(&this_one);
    ::sigaddset(&this_one, number);
    ::pthread_sigmask(SIG_UNBLOCK, &this_one, nullptr);
    ::raise(number);
}

void end_in_order(int number) {
    if (was_told.exchange(true)) return end_at_once(number);
    library_handler.load()(number);
}

void pass_on(int) { ::kill(::getpid(), turned_into.load()); }

int take(int number, handler what) {
    struct sigaction action {};
    action.sa_handler = what;
    return ::sigaction(number, &action, nullptr) == 0 ? 0 : -errno;
}

bool is_ignored(int number) {
    struct sigaction action {};
    return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool is_default(int number) {
    struct sigaction action {};
    return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
}

int take_all(handler what) {
    int code = 0;
    for (const int number : meant) code = std::min(code, take(number, what));
    for (const int number : others)
        if (!is_ignored(number)) code = std::min(code, take(number, what));
    for (int number = SIGRTMIN; number <= SIGRTMAX; ++number)
        if (!is_ignored(number)) code = std::min(code, take(number, what));
    return code;
}

// Where there is no /dev/null, anything that takes the number will do: writing to it is an error
// then.
void open_standard_streams() {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
        if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            ::open("/dev/null", O_RDWR | O_NOCTTY) < 0)
            ::open("/", O_PATH);
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
        if (is_default(number))
            static_cast<void>(take(number, end_at_once));  // a sanitizer has its own
}

}  // namespace

int run_process(const char* name, const char* smaller, const std::function<int()>& body) {
    start();
    set_program_name(name);
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
    struct sigaction action {};
    if (code == 0 && ::sigaction(SIGTERM, nullptr, &action) != 0) code = -errno;
    if (code == 0) {
        library_handler.store(action.sa_handler);
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
    for (const int one : meant)
        if (one != number) static_cast<void>(take(one, pass_on));
    for (const int one : others)
        if (one != number && !is_ignored(one)) static_cast<void>(take(one, pass_on));
    for (int one = SIGRTMIN; one <= SIGRTMAX; ++one)
        if (one != number && !is_ignored(one)) static_cast<void>(take(one, pass_on));
}

}  // namespace penstock::apps
