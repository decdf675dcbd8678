// Memory whose first store a test meets: it has a turn between what the writer did before the store
// and what comes after.
#pragma once

#include <sys/mman.h>

#include <csignal>
#include <cstddef>
#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "os/anonymous_memory.hpp"

namespace penstock::test {

// One at a time in a process.
class first_store {
public:
    static constexpr std::size_t bytes = 65536;  // whole pages, however large they are

    // `then` runs in the writer's thread, with the address of the store.
    explicit first_store(std::function<void(const void* at)> then) {
        then_ = std::move(then);
        if (!memory_.take(2 * bytes) || ::mprotect(memory(), bytes, PROT_READ) != 0) {
            ADD_FAILURE() << "no memory";
            return;
        }
        place_ = memory();
        struct sigaction action {};
        action.sa_sigaction = &meet;
        action.sa_flags = SA_SIGINFO;
        ::sigaction(SIGSEGV, &action, &before_);
    }
    ~first_store() {
        if (place_ != nullptr) ::sigaction(SIGSEGV, &before_, nullptr);
        then_ = nullptr;
        place_ = nullptr;
    }
    first_store(const first_store&) = delete;
    first_store& operator=(const first_store&) = delete;

    // As much memory again lies before it, where stores are not met.
    [[nodiscard]] std::byte* memory() const { return memory_.at(bytes); }
    [[nodiscard]] static bool was_met() { return then_ == nullptr; }

private:
    // Any other fault is the program's, and comes again without this.
    static void meet(int, siginfo_t* fault, void*) {
        const auto* const at = static_cast<const std::byte*>(fault->si_addr);
        if (at < place_ || at >= place_ + bytes ||
            ::mprotect(place_, bytes, PROT_READ | PROT_WRITE) != 0) {
            ::sigaction(SIGSEGV, &before_, nullptr);
            return;
        }
        std::exchange(then_, nullptr)(at);
    }

    static inline std::function<void(const void*)> then_;
    static inline std::byte* place_ = nullptr;
    static inline struct sigaction before_ {};
    host::anonymous_memory memory_;
};

}  // namespace penstock::test
