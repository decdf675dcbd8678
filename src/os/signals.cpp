// Turning SIGINT and SIGTERM into an interrupt of every runtime. The handler only sets a flag; each
// runtime's monitor thread looks at it with every heartbeat.
#include <atomic>
#include <cerrno>
#include <csignal>

#include "penstock/runtime.hpp"

namespace penstock {

namespace {

std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

void on_signal(int) { signal_came.store(true, std::memory_order_relaxed); }

}  // namespace

int interrupt_on_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal kills
    if (sigaction(SIGINT, &action, nullptr) != 0 || sigaction(SIGTERM, &action, nullptr) != 0)
        return -errno;
    return 0;
}

bool was_interrupted() { return signal_came.load(std::memory_order_relaxed); }

}  // namespace penstock
