// The process that made an object. A child of fork() has a copy of the object without its threads,
// and without the GPU: it must not wait for the one or touch the other.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace penstock::host {

class process_owner {
public:
    process_owner() : forks_(forks_so_far()) {}

    // True in the process that made it, false in its children. Costs a load.
    [[nodiscard]] bool here() const { return forks_ == forks_so_far(); }

private:
    // How many forks lie between the first process and this one. A child counts itself before
    // fork() returns there.
    static std::uint64_t forks_so_far() {
        static std::atomic<std::uint64_t> forks{0};
        static const int watching = ::pthread_atfork(nullptr, nullptr, [] {
            forks.store(forks.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        });
        static_cast<void>(watching);
        // Relaxed: the child has one thread when it counts, and its later threads are made after
        // that.
        return forks.load(std::memory_order_relaxed);
    }

    std::uint64_t forks_;
};

// Keeps until the child ends what it inherited and must not destroy.
template <typename T>
void abandon(std::unique_ptr<T> inherited) {
    static std::mutex mutex;
    static auto* const kept = new (std::nothrow) std::vector<T*>;  // so that no leak is reported
    T* const object = inherited.release();
    const std::lock_guard lock(mutex);
    try {
        if (kept != nullptr) kept->push_back(object);
    } catch (const std::bad_alloc&) {
    }
}

// The one object of its type in a process. A child of fork() begins with a new one: what it
// inherited may be locked by threads that it does not have, and tells of things that are not its
// own. Never destroyed.
template <typename T>
T& one_of_process() {
    struct entry {
        T value{};
        entry* parents = nullptr;
    };
    static std::atomic<entry*> newest{new entry};
    static const int watching = ::pthread_atfork(nullptr, nullptr, [] {
        auto* const fresh = new entry;
        fresh->parents = newest.load(std::memory_order_relaxed);
        newest.store(fresh, std::memory_order_relaxed);
    });
    static_cast<void>(watching);
    // Relaxed: as above.
    return newest.load(std::memory_order_relaxed)->value;
}

}  // namespace penstock::host
