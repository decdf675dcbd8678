// Running one function on several threads, and the first error that any of them met.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "penstock/error.hpp"

namespace penstock::apps {

// Calls body(number) on `count` threads, this one among them, and waits for all. Throws
// std::system_error before any call if there are not so many threads, and afterwards what a call
// threw, the first of them. Others go on to their end then: a body whose threads wait for each
// other must not throw.
void on_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body);

// The same on threads that end with it, for a body that changes its thread (the processors that it
// may run on).
void on_new_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body);

// options::worker_threads, or one for every processor.
std::uint32_t thread_count(std::uint32_t wanted);

class first_error {
public:
    void note(status failed);
    // True once something failed or the user interrupted: time to stop.
    [[nodiscard]] bool stop() const;
    // The error; -ECANCELED and a message after an interrupt.
    [[nodiscard]] status get() const;

private:
    mutable std::mutex mutex_;
    status status_;  // guarded by mutex_
    std::atomic<bool> failed_{false};
};

}  // namespace penstock::apps
