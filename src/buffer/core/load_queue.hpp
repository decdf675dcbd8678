// Slots in the order in which they were put here, of which the oldest is wanted now and then and
// most leave from the middle. A slot that leaves stays behind as a stale entry, told by its number;
// when the ring is full the stale ones are swept out. So a slot that comes or goes costs no look at
// others.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/core/linked.hpp"

namespace penstock::buffer {

class load_queue {
public:
    explicit load_queue(std::uint32_t slots = 0) : ring_(2 * std::size_t{slots}) {}

    // turn(slot) is a reference to the slot's number in the queue; 0: it is not in the queue.
    template <typename Turn>
    void push(std::uint32_t slot, const Turn& turn) {
        if (size_ == ring_.size()) sweep(turn);
        last_ = last_ + 1 == 0 ? 1 : last_ + 1;
        turn(slot) = last_;
        ring_[at(size_++)] = {slot, last_};
    }
    template <typename Turn>
    void remove(std::uint32_t slot, const Turn& turn) {
        turn(slot) = 0;
    }
    // The slot that came first of those that are here, or `nothing`.
    template <typename Turn>
    std::uint32_t first(const Turn& turn) {
        while (size_ != 0 && stale(ring_[first_], turn)) {
            first_ = at(1);
            --size_;
        }
        return size_ == 0 ? nothing : ring_[first_].slot;
    }
    // For the check.
    template <typename Turn>
    [[nodiscard]] std::uint32_t count(const Turn& turn) const {
        std::uint32_t live = 0;
        for (std::size_t i = 0; i < size_; ++i) live += !stale(ring_[at(i)], turn);
        return live;
    }

private:
    struct entry {
        std::uint32_t slot = 0, turn = 0;
    };
    [[nodiscard]] std::size_t at(std::size_t i) const {
        return first_ + i < ring_.size() ? first_ + i : first_ + i - ring_.size();
    }
    template <typename Turn>
    static bool stale(const entry& one, const Turn& turn) {
        return turn(one.slot) != one.turn;
    }
    // At most half of the entries are in use, so the next sweep is as many pushes away.
    template <typename Turn>
    void sweep(const Turn& turn) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i)
            if (const entry one = ring_[at(i)]; !stale(one, turn)) ring_[at(kept++)] = one;
        size_ = kept;
    }

    std::vector<entry> ring_;
    std::size_t first_ = 0, size_ = 0;
    std::uint32_t last_ = 0;
};

}  // namespace penstock::buffer
