// Ties the engine to the explorer. Include it before any Penstock header.
//
// Every atomic access of the engine becomes a point where another fiber may run, and a failed
// engine assertion becomes a violation that the explorer reports with its schedule, instead of
// ending the program.
#pragma once

#include <cstdint>

namespace explore {

// Called by a fiber before it accesses `address`. Other fibers may run before it returns.
void point(const void* address, bool is_write);

// Ends the schedule that is being run, as one that breaks a rule. Does not return when a fiber
// calls it.
void violation(const char* message);

inline void require(bool holds, const char* message) {
    if (!holds) violation(message);
}

}  // namespace explore

#if defined(PENSTOCK_SCHEDULE_POINT)
#error "a Penstock header was included before explore/hook.hpp"
#endif
#define PENSTOCK_SCHEDULE_POINT(address, is_write) ::explore::point(address, is_write)

#include "penstock/base/macros.hpp"

#undef PENSTOCK_ASSERT
#define PENSTOCK_ASSERT(condition) ::explore::require(condition, "assertion failed: " #condition)
