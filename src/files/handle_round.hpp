// The slots whose files have a handle of the host, for a hand that goes round them in search of one
// to park. Slots without one are not met: of tens of thousands of files most may be parked. Not
// thread-safe: the file registry's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::host {

class handle_round {
public:
    explicit handle_round(std::size_t slots) : place_(slots, none) {}

    [[nodiscard]] std::size_t size() const { return order_.size(); }

    // A slot that is not in yet.
    void add(std::uint32_t slot) {
        place_[slot] = static_cast<std::uint32_t>(order_.size());
        order_.push_back(slot);
    }

    // A slot that is in. The last takes its place, and is next if that is where the hand is.
    void remove(std::uint32_t slot) {
        const std::uint32_t at = place_[slot];
        order_[at] = order_.back();
        place_[order_[at]] = at;
        order_.pop_back();
        place_[slot] = none;
        if (at + 1 == hand_) --hand_;
    }

    // Where the hand comes next; there must be one.
    std::uint32_t next() {
        if (hand_ >= order_.size()) hand_ = 0;
        return order_[hand_++];
    }

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> place_;  // of each slot in it
    std::uint32_t hand_ = 0;
};

}  // namespace penstock::host
