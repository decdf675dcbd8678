// Whether SIGINT or SIGTERM came, in a program that asked for it (interrupt_on_signals). A wait
// that a signal ends looks here before it goes on.
#pragma once

#include <atomic>

namespace penstock::host {

inline std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

}  // namespace penstock::host
