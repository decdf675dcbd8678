// Running one function on several threads, and the first error that any of them met.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>

#include "penstock/error.hpp"

namespace penstock::apps {

// Calls body(number) on `count` threads, this one among them, and waits for all.
void on_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body);

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
