#include "explore/fiber.hpp"

#include <cstdint>
#include <cstdlib>

namespace explore {

#if defined(__x86_64__)

// Saves the registers that a call preserves on the old stack, and takes those of the new one.
// swapcontext would do, but it makes a system call each time, and an exploration switches some
// hundred million times.
extern "C" void explore_switch(void** save, void* load);
extern "C" void explore_begin();
asm(R"(
.text
.globl explore_switch
.type explore_switch, @function
explore_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size explore_switch, .-explore_switch
.globl explore_begin
.type explore_begin, @function
explore_begin:
    movq %r12, %rdi
    callq *%r13
    ud2
.size explore_begin, .-explore_begin
)");

fiber::fiber() : stack_(new std::byte[stack_bytes]) {}

void fiber::restart(void (*body)(void*), void* argument) {
    start_ = {body, argument};
    const auto top =
        (reinterpret_cast<std::uintptr_t>(stack_.get()) + stack_bytes) & ~std::uintptr_t{15};
    // r15 r14 r13 r12 rbx rbp, return address, and two words so that the stack is aligned before
    // explore_begin calls.
    auto* frame = reinterpret_cast<void**>(top) - 9;
    frame[0] = frame[1] = frame[4] = frame[5] = frame[7] = frame[8] = nullptr;
    frame[2] = reinterpret_cast<void*>(body);
    frame[3] = argument;
    frame[6] = reinterpret_cast<void*>(&explore_begin);
    own_ = frame;
}

void fiber::enter() { explore_switch(&main_, own_); }
void fiber::leave() { explore_switch(&own_, main_); }

#else

fiber::fiber() : stack_(new std::byte[stack_bytes]) {}

namespace {
void begin(unsigned high, unsigned low) {
    auto* entry = reinterpret_cast<fiber::start*>(std::uintptr_t{high} << 32 | low);
    entry->body(entry->argument);
    std::abort();
}
}  // namespace

void fiber::restart(void (*body)(void*), void* argument) {
    start_ = {body, argument};
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.get();
    own_.uc_stack.ss_size = stack_bytes;
    const auto address = reinterpret_cast<std::uintptr_t>(&start_);
    makecontext(&own_, reinterpret_cast<void (*)()>(&begin), 2,
                static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
}

void fiber::enter() { swapcontext(&main_, &own_); }
void fiber::leave() { swapcontext(&own_, &main_); }

#endif

}  // namespace explore
