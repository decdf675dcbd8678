// The watcher of the rings while service threads are idle: one service thread watches for all, so
// that the other threads can sleep. For runtimes whose posters cannot ring a doorbell; where all of
// them can, threads sleep until they are rung (service::rest).
//
// A GPU cannot wake a thread, so a thread has to look at the rings now and then. If every idle
// thread did so, four threads would wake four thousand times a second for nothing.
//
// The groups of a small kernel may all ask one thread, and another one watches for it. So a thread
// that comes to rest after a request has the watcher begin anew with short naps.
//
// Once each thread had no request for `long_idle_ns`, the looks are rarer still, and once more
// after `longest_idle_ns`. What the host does to the runtime ends that (expect): a kernel is given
// the runtime by a call of the host, as a rule, and the watcher looks often again before the
// kernel's first request. Only a kernel that has the runtime from before may find a watcher that
// looks every `rare_look_ns`, or every `rarest_look_ns`.
//
// Invariants
//  (1) At most one thread watches. Between two looks at all rings of resting threads it naps at
//      first for `first_look_ns`, and longer the more often it found nothing, but never longer than
//      the `look_ns` of any thread at rest.
//  (2) A thread rests only with its doorbell's `sleeping` set and its place on the list, so that
//      the watcher can wake it.
//  (3) A watcher that leaves because there is work, or because it ends, wakes another thread, which
//      becomes the next watcher.
//  (4) No thread sleeps longer than `sleep_ns`: if a watcher dies on the way, the next thread that
//      wakes takes its place.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "penstock/group/doorbell.hpp"

namespace penstock::host {

class idle_watch {
public:
    // A service thread at rest, and whether a request is there for it. The watcher asks too, and
    // takes no request.
    struct place {
        host_doorbell* bell = nullptr;
        std::function<bool()> is_asked;
    };
    struct limits {
        std::uint64_t look_ns = 2'000'000;
        std::uint64_t sleep_ns = 100'000'000;
        std::uint64_t first_look_ns = 160'000;
        // After so long without a request, in place of look_ns and sleep_ns.
        std::uint64_t long_idle_ns = 10'000'000'000;
        std::uint64_t rare_look_ns = 40'000'000;
        std::uint64_t long_sleep_ns = 1'000'000'000;
        // And after so long.
        std::uint64_t longest_idle_ns = 60'000'000'000;
        std::uint64_t rarest_look_ns = 150'000'000;
        std::uint64_t longest_sleep_ns = 4'000'000'000;

        // Those of a thread that had no request for so long.
        [[nodiscard]] limits after(std::uint64_t idle_ns) const {
            limits out = *this;
            if (idle_ns >= long_idle_ns) {
                const bool longest = idle_ns >= longest_idle_ns;
                out.look_ns = longest ? rarest_look_ns : rare_look_ns;
                out.sleep_ns = longest ? longest_sleep_ns : long_sleep_ns;
            }
            if (idle_ns > 0) out.first_look_ns = out.look_ns;
            return out;
        }
    };

    // Rests until a request is there, the bell rings, or `sleep_ns` have passed; in the last case
    // returns false. May return early. The thread that sets `stop` or `killed` rings afterwards.
    bool rest(const place& self, const limits& at_most, const std::atomic<bool>& stop,
              const std::atomic<bool>& killed);

    // A request may come soon: wakes the watcher if its looks are rare. Relaxed: a caller that
    // comes a moment too early finds a watcher that looked often until then. One load as a rule.
    void expect() {
        if (is_rare()) wake_watcher();
    }
    [[nodiscard]] bool is_rare() const { return pace() != looks::often; }
    [[nodiscard]] bool is_rarest() const { return pace() == looks::rarest; }
    // How many threads are on the list: where a test has to know that one can be woken.
    [[nodiscard]] std::size_t resting_count() const {
        const std::lock_guard lock(mutex_);
        return resting_.size();
    }

private:
    enum class looks : std::uint8_t { often, rare, rarest };
    struct sleeper : place {
        std::uint64_t look_ns;  // the longest time between two looks that it bears
    };

    [[nodiscard]] looks pace() const { return pace_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool enter(const place& self, const limits& at_most);
    void wake_watcher();
    void leave(const place& self, bool watched, bool hand_over);
    void wake_asked(const place& self, const limits& at_most, std::uint32_t naps_before);

    mutable std::mutex mutex_;  // guards the three below
    std::vector<sleeper> resting_;
    host_doorbell* watcher_ = nullptr;
    std::uint64_t nap_ns_ = 0;               // of the watcher, which alone writes it
    std::atomic<looks> pace_{looks::often};  // of the watcher; written under the lock
};

}  // namespace penstock::host
