// CPU threads: one function on several of them, their first error, and room for each to work in.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

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
std::uint32_t thread_count(std::optional<std::uint32_t> wanted);

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

// take(thread, first, count) for pieces of at most `step` of a whole, by so many threads; gives a
// status. The first error or an interrupt ends it.
template <typename Take>
status on_pieces(std::uint32_t threads, std::uint64_t whole, std::uint64_t step, const Take& take) {
    std::atomic<std::uint64_t> next{0};
    first_error errors;
    on_threads(threads, [&](std::uint32_t thread) {
        for (std::uint64_t at = next.fetch_add(step); at < whole && !errors.stop();
             at = next.fetch_add(step))
            errors.note(take(thread, at, std::min(step, whole - at)));
    });
    return errors.get();
}

// Room in which each CPU thread keeps what it works on.
class thread_scratch {
public:
    // So many numbers for each thread, aligned to 64 bytes. -ENOMEM and a message if there is not
    // enough memory.
    status allocate(std::uint32_t threads, std::uint64_t floats) {
        const std::uint64_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
        owned_.reset(static_cast<float*>(std::aligned_alloc(64, bytes * threads)));
        if (owned_ == nullptr)
            return {-ENOMEM, std::to_string(threads) + " threads need " + format_size(bytes) +
                                 " each, which is not free; use fewer --workers"};
        for (std::uint32_t i = 0; i < threads; ++i)
            pointers_.push_back(owned_.get() + i * bytes / sizeof(float));
        return {};
    }
    [[nodiscard]] float* const* pointers() const { return pointers_.data(); }

private:
    std::unique_ptr<float, void (*)(void*)> owned_{nullptr, std::free};
    std::vector<float*> pointers_;
};

}  // namespace penstock::apps
