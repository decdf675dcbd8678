// The word of a doorbell: the steps by which a thread falls asleep and another one wakes it, so
// that no wake-up is lost. The system calls are not here (os/host_thread.cpp), so that the explorer
// runs these steps under every schedule (tests/explore/service_test.cpp).
//
//   step   word             writer       order                     then
//   begin  -> asleep        the sleeper  store, then a full fence  it looks for work once more
//   ring   asleep -> rung   a poster     full fence, then CAS      the poster wakes the futex
//   wait   asleep (read)    the sleeper  acquire                   it sleeps while it is asleep
//   end    -> awake         the sleeper  relaxed                   it looks for work
//
// Invariants
//  (1) A poster publishes its work, then rings. The sleeper begins, looks for work, then waits.
//      Both have a full fence between their store and their load, so at least one of them sees the
//      other's store: either the sleeper finds the work, or the poster finds `asleep`. With weaker
//      orders both loads could come before both stores, and the sleeper would miss the work.
//  (2) The poster that changed `asleep` wakes the futex, and no other one does. A futex wait
//      returns at once if the word has changed before it.
//  (3) `rung` stays until the sleeper begins or ends, so a ring before the wait is not lost.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"

namespace penstock::host {

enum bell_state : std::uint32_t { bell_awake, bell_asleep, bell_rung };

// ThreadSanitizer does not model fences. Nothing here relies on this one for the data of a request:
// that goes by the release and acquire of its own word.
inline void store_before_load() {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wtsan"
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#pragma GCC diagnostic pop
}

inline void begin_bell_sleep(std::uint32_t* word) {
    atomic_store<order::relaxed>(word, static_cast<std::uint32_t>(bell_asleep));
    store_before_load();
}

// True: the caller has to wake the futex. Release: pairs with is_rung.
inline bool ring_bell(std::uint32_t* word) {
    store_before_load();
    return atomic_load<order::relaxed>(word) == bell_asleep &&
           atomic_compare_swap<order::release>(word, static_cast<std::uint32_t>(bell_asleep),
                                               static_cast<std::uint32_t>(bell_rung));
}

// Acquire: pairs with ring_bell; the sleeper sees what the poster did before.
inline bool is_rung(const std::uint32_t* word) {
    return atomic_load<order::acquire>(word) == bell_rung;
}

// A poster that comes later finds the thread awake; the thread looks for work before it begins to
// sleep again, so a relaxed store is enough.
inline void end_bell_sleep(std::uint32_t* word) {
    atomic_store<order::relaxed>(word, static_cast<std::uint32_t>(bell_awake));
}

inline bool is_bell_asleep(const std::uint32_t* word) {
    return atomic_load<order::relaxed>(word) != bell_awake;
}

}  // namespace penstock::host
