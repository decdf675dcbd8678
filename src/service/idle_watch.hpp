// The watcher of the rings while service threads are idle: one service thread watches for all, so
// that the other threads can sleep.
//
// A GPU cannot wake a thread, so a thread has to look at the rings now and then. If every idle
// thread did so, four threads would wake four thousand times a second for nothing.
//
// Invariants
//  (1) At most one thread watches. Between two looks at all rings of resting threads it naps at
//      first for `first_look_ns`, and longer the more often it found nothing, but never longer than
//      `look_ns`.
//  (2) A thread rests only with its doorbell's `sleeping` set and its place on the list, so that
//      the watcher can wake it.
//  (3) A watcher that leaves because there is work, or because it ends, wakes another thread, which
//      becomes the next watcher.
//  (4) No thread sleeps longer than `sleep_ns`: if a watcher dies on the way, the next thread that
//      wakes takes its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "penstock/group/doorbell.hpp"

namespace penstock::host {

class idle_watch {
public:
    // A request is there once `*word` says `wanted`.
    struct awaited {
        const std::uint64_t* word = nullptr;
        std::uint64_t wanted = 0;
    };
    // A service thread at rest, with a word for each of its rings.
    struct place {
        host_doorbell* bell = nullptr;
        std::vector<awaited> words;
    };
    struct limits {
        std::uint64_t look_ns = 2'000'000;
        std::uint64_t sleep_ns = 100'000'000;
        std::uint64_t first_look_ns = 160'000;
    };

    // Rests until a request is there, the bell rings, or `sleep_ns` have passed; in the last case
    // returns false. May return early. The thread that sets `stop` or `killed` rings afterwards.
    bool rest(const place& self, const limits& at_most, const std::atomic<bool>& stop,
              const std::atomic<bool>& killed);

private:
    [[nodiscard]] bool enter(const place& self);
    void leave(const place& self, bool watched, bool hand_over);
    void wake_asked(const place& self);

    std::mutex mutex_;  // guards the two below; never taken by a holder of a doorbell's
    std::vector<place> resting_;
    bool watched_ = false;
};

}  // namespace penstock::host
