// Threads of control that switch only where they say so, so that one OS thread can run any
// interleaving of them.
#pragma once

#include <cstddef>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace explore {

// Runs `body(argument)` on a stack of its own. It may be dropped and restarted at any time: what
// lives on its stack is then forgotten without its destructors, so bodies keep nothing there that
// owns memory.
class fiber {
public:
    fiber();
    // Puts the fiber at the beginning of body. body must end by switching away for good.
    void restart(void (*body)(void*), void* argument);
    // From the main program: runs the fiber until it calls leave().
    void enter();
    // From the fiber: back to the main program, until the next enter().
    void leave();

    struct start {
        void (*body)(void*);
        void* argument;
    };

private:
    static constexpr std::size_t stack_bytes = 64 * 1024;
    std::unique_ptr<std::byte[]> stack_;
    start start_{};
#if defined(__x86_64__)
    void* own_ = nullptr;
    void* main_ = nullptr;
#else
    ucontext_t own_{}, main_{};
#endif
};

}  // namespace explore
