// The process that made an object. A child of fork() has a copy of the object without its threads, and
// without the GPU: it must not wait for the one or touch the other.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace penstock::host {

class process_owner {
public:
    process_owner() : forks_(forks_so_far()) {}

    // True in the process that made it, false in its children. Costs a load.
    [[nodiscard]] bool here() const { return forks_ == forks_so_far(); }

private:
    // How many forks lie between the first process and this one. A child counts itself before fork()
    // returns there.
    static std::uint64_t forks_so_far() {
        static std::atomic<std::uint64_t> forks{0};
        static const int watching = ::pthread_atfork(nullptr, nullptr, [] {
            forks.store(forks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        });
        static_cast<void>(watching);
        // Relaxed: the child has one thread when it counts, and its later threads are made after that.
        return forks.load(std::memory_order_relaxed);
    }

    std::uint64_t forks_;
};

}  // namespace penstock::host
