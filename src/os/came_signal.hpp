// Whether SIGINT or SIGTERM came, in a program that asked for it (interrupt_on_signals). A wait
// that a signal ends looks here before it goes on.
#pragma once

#include <atomic>
#include <cerrno>

namespace penstock::host {

inline std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

// Makes an open again that a signal ended while it waited for a lease, or for a server. Not after a
// signal that asks for the program's end: then it fails with ECANCELED.
template <typename Open>
int open_past_signals(const Open& open) {
    for (;;) {
        const int opened = open();
        if (opened >= 0 || errno != EINTR) return opened;
        if (!signal_came.load(std::memory_order_relaxed)) continue;
        errno = ECANCELED;
        return -1;
    }
}

}  // namespace penstock::host
