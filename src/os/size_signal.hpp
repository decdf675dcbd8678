// A write past the process's limit on file sizes fails with EFBIG, but also sends its thread a
// signal (SIGXFSZ) that would end the program.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace penstock::host {

inline sigset_t size_signal() {
    sigset_t out;
    ::sigemptyset(&out);
    ::sigaddset(&out, SIGXFSZ);
    return out;
}

// For a thread of ours.
inline void ignore_size_signal() {
    const sigset_t signal = size_signal();
    ::pthread_sigmask(SIG_BLOCK, &signal, nullptr);
}

// For a thread that is not the library's, while it writes a file of ours: what came meanwhile is
// taken away, and the thread is as it was. Three system calls.
class without_size_signal {
public:
    without_size_signal() {
        const sigset_t signal = size_signal();
        ::pthread_sigmask(SIG_BLOCK, &signal, &before_);
    }
    ~without_size_signal() {
        if (::sigismember(&before_, SIGXFSZ) == 1) return;
        const sigset_t signal = size_signal();
        sigset_t waiting;
        // Only if there is one: to take it away is one more call.
        if (::sigpending(&waiting) == 0 && ::sigismember(&waiting, SIGXFSZ) == 1) {
            const timespec at_once{};
            ::sigtimedwait(&signal, nullptr, &at_once);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    without_size_signal(const without_size_signal&) = delete;
    without_size_signal& operator=(const without_size_signal&) = delete;

private:
    sigset_t before_{};
};

}  // namespace penstock::host
