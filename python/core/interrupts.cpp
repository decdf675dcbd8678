#include "core/interrupts.hpp"

#include <nanobind/nanobind.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "penstock/runtime.hpp"

namespace penstock::python {

namespace {

// Never freed: its thread waits while the process ends.
struct watch_state {
    watch_state() { sem_init(&wake, 0, 0); }

    // In a child of fork(), before it has threads: those of the parent may have held the mutex, and
    // the calls that the parent was in do not go on here.
    void begin_anew() {
        std::construct_at(&mutex);
        sem_init(&wake, 0, 0);
        target = nullptr;
    }

    sem_t wake{};
    std::mutex mutex;
    runtime* target = nullptr;  // under the mutex
    std::atomic<bool> seen{false};
    struct sigaction before = {};  // written before the handler is installed
    pid_t process = 0;             // in which the thread runs; main thread only
};

watch_state& state() {
    static watch_state& only = *new watch_state;
    return only;
}

void run_watch(watch_state& s) {
    for (;;) {
        while (sem_wait(&s.wake) != 0) {
        }
        const std::lock_guard lock(s.mutex);
        // The signal may have been of a call that has ended meanwhile. Then the call that runs now
        // has seen none, and would leave the runtime interrupted.
        if (s.target != nullptr && s.seen.load()) s.target->interrupt();
    }
}

// Calls only what a handler may call.
void on_signal(int number, siginfo_t* info, void* context) {
    watch_state& s = state();
    s.seen.store(true);
    sem_post(&s.wake);
    if ((s.before.sa_flags & SA_SIGINFO) != 0) s.before.sa_sigaction(number, info, context);
    else s.before.sa_handler(number);
}

class all_signals_blocked {
public:
    all_signals_blocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~all_signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    all_signals_blocked(const all_signals_blocked&) = delete;
    all_signals_blocked& operator=(const all_signals_blocked&) = delete;

private:
    sigset_t before_;
};

// The thread does not handle signals of the process. A child of fork() has none yet.
bool start_watch(watch_state& s, pid_t process) {
    if (s.process == process) return true;
    if (s.process != 0) s.begin_anew();
    try {
        const all_signals_blocked until_started;
        std::thread(run_watch, std::ref(s)).detach();
    } catch (const std::exception&) {  // no thread, or no memory for one
        return false;                  // Ctrl-C then waits for the end of the call
    }
    s.process = process;
    return true;
}

// False: Python has taken its place since, for instance for signal.signal().
bool is_installed() {
    struct sigaction now = {};
    return sigaction(SIGINT, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 &&
           now.sa_sigaction == on_signal;
}

}  // namespace

interruptible_call::interruptible_call(runtime& rt) : rt_(rt) { begin(); }

void interruptible_call::begin() {
    const pid_t process = getpid();
    if (syscall(SYS_gettid) != process) return;  // not the main thread
    watch_state& s = state();
    if (sigaction(SIGINT, nullptr, &before_) != 0) return;
    // Of a call of the parent that was under way when another thread forked.
    if (before_.sa_sigaction == on_signal && s.process != process) before_ = s.before;
    // Ours already: a handler of Python runs inside of a call that is watched, and calls.
    if (before_.sa_handler == SIG_DFL || before_.sa_handler == SIG_IGN ||
        before_.sa_sigaction == on_signal || !start_watch(s, process))
        return;
    s.before = before_;
    s.seen.store(false);
    {
        const std::lock_guard lock(s.mutex);
        s.target = &rt_;
    }
    struct sigaction ours = before_;
    ours.sa_flags |= SA_SIGINFO;
    ours.sa_sigaction = on_signal;
    watching_ = sigaction(SIGINT, &ours, nullptr) == 0;
    if (!watching_) {
        const std::lock_guard lock(s.mutex);
        s.target = nullptr;
    }
}

void interruptible_call::run_handlers() {
    raise_pending();
    while (watching_ && !is_installed()) {
        end_and(false);
        begin();
        raise_pending();
    }
}

bool interruptible_call::end_and(bool is_ours) {
    watching_ = false;
    watch_state& s = state();
    if (is_ours) sigaction(SIGINT, &before_, nullptr);
    {
        const std::lock_guard lock(s.mutex);
        s.target = nullptr;
    }
    // Else a call within Python's handler may have been watched too, and `seen` is of that one.
    if (is_ours && !s.seen.load()) return false;
    rt_.resume();
    return true;
}

bool interruptible_call::end() { return watching_ && end_and(true); }

// A handler that raised may have chosen another before.
interruptible_call::~interruptible_call() {
    if (watching_) end_and(is_installed());
}

void raise_pending() {
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace penstock::python
