// Visits to windows by threads of this process: the host must know when a mapping is no longer
// being copied from, before it lets the file become shorter.
//
// A visit counts itself, and then looks at window words. The host clears a word and then looks at
// the counts. With a fence between the two steps on either side, a visit that found the word set is
// seen in the counts. So once both counts were seen at 0, no visit copies through that word. Visits
// that begin later would keep one count above 0 for ever, so there are two: each round has its own,
// and a round begins when the count of the one before is down to 0.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "penstock/group/lane.hpp"

namespace penstock::host {

class window_visits {
public:
    // Keep it short: the host waits for it, and so may a program that wants to write to the file.
    class visit {
    public:
        explicit visit(window_visits& of)
            : count_(of.counts_[lane{}.home() % stripes].of_round[of.round_ % 2].value) {
            ++count_;
            __sync_synchronize();  // pairs with pass(): counted before a word is looked at
        }
        ~visit() { --count_; }
        visit(const visit&) = delete;
        visit& operator=(const visit&) = delete;

    private:
        std::atomic<std::uint64_t>& count_;
    };

    // The calls below need a lock of the caller's. For a word that was cleared just now: visits
    // that may have found it are over when pass() gives this round or a later one.
    [[nodiscard]] std::uint64_t free_from() const { return round_ + 2; }
    // Begins up to two rounds and waits for nothing. Returns the current one.
    std::uint64_t pass() {
        // Pairs with visit: the words were cleared before the counts are looked at. Both sides
        // store and then load, so the fence is one of every order.
        __sync_synchronize();
        for (int i = 0; i < 2 && !has_visits((round_ + 1) % 2); ++i) ++round_;
        return round_;
    }

private:
    // Threads seldom share a count, so that it seldom moves between processors.
    static constexpr std::uint32_t stripes = 64;
    struct alignas(64) count {
        std::atomic<std::uint64_t> value{0};
    };
    struct counts {
        count of_round[2];
    };

    [[nodiscard]] bool has_visits(std::uint64_t round) const {
        for (const counts& stripe : counts_)
            if (stripe.of_round[round].value != 0) return true;
        return false;
    }

    std::array<counts, stripes> counts_;
    std::atomic<std::uint64_t> round_{0};
};

}  // namespace penstock::host
